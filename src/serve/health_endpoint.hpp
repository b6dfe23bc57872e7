// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serve/http_server.hpp"
#include "serve/node_watch.hpp"

namespace preload {

// A node's /health and /metrics: one process of the node answers for all daemons of the job there.
class HealthEndpoint {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;
    std::string job;
    int expected = 1;        // daemons of the job in this directory
    bool successor = false;  // of a daemon that has the port until it ends
    // What this process knows of the job before any daemon does: why it ends; nothing while it
    // lives. Called on the endpoint's thread.
    std::function<std::optional<std::string>()> ending;
  };

  // Throws Error(kUsage) when it cannot be listened there. `directory` outlives it.
  HealthEndpoint(const SocketDir& directory, Options options);

  Health health() const;
  void expect(int daemons) { watch_.expect(daemons); }
  int port() const noexcept { return server_.port(); }
  void expect_port() noexcept { server_.expect_port(); }

 private:
  HttpReply reply(const HttpRequest& request);

  const Options options_;
  NodeWatch watch_;
  HttpServer server_;  // last: its thread uses the rest
};

// The answer to GET /health: 200 or 503 with the reason, as JSON where the client asks for it.
HttpReply health_reply(const Health& health, const std::string& job, const HttpRequest& request);

}  // namespace preload
