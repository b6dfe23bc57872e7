// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace preload {

struct HttpRequest {
  std::string path;    // "/health", without the query
  std::string query;   // behind '?', "" where there is none
  std::string accept;  // of that header
};
struct HttpReply {
  int status = 200;
  std::string body;
  std::string type = "text/plain; charset=utf-8";
};

// Answers GET and HEAD for monitoring: small requests, small replies, a connection for each. One
// thread waits for all connections at once, and each has a few seconds from its first to its last
// byte: however many clients are silent, slow or gone, others are answered and the end takes no
// time. (Servers with a thread a connection, cpp-httplib among them, promise neither.)
class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  // Listens at `host` (name or address) and `port`; 0: one that is free. `handler` is called on the
  // server's thread. Throws Error(kUsage) when it cannot be listened there; but a successor waits
  // on the server's thread for a port that is taken: its predecessor has it until it ends.
  HttpServer(const std::string& host, int port, Handler handler, bool successor = false);
  ~HttpServer();  // at once, whoever is connected
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const noexcept;  // 0 until it is listened at
  // Thread-safe: the predecessor has been replaced. A port that it, or another, still has after
  // `patience` is warned of; it is tried on.
  void expect_port(std::chrono::milliseconds patience = std::chrono::seconds(5)) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace preload
