// SPDX-License-Identifier: Apache-2.0
#pragma once

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
  // server's thread. Throws Error(kUsage) when it cannot be listened there.
  HttpServer(const std::string& host, int port, Handler handler);
  ~HttpServer();  // at once, whoever is connected
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace preload
