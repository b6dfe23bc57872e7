// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "cli/serve_options.hpp"
#include "run/launch.hpp"
#include "run/rank_control.hpp"
#include "serve/health_endpoint.hpp"
#include "serve/service_manager.hpp"

namespace preload::run {

// What a job shows to those who watch it: from rank 0 the READY line and what its service manager
// hears, from each node's first rank /health and /metrics. On other ranks nothing.
class JobFront {
 public:
  // All outlive it.
  JobFront(const cli::ServeOptions& options, const Launch& launch, const RankControl& control);

  // Before anything is loaded, so that a port that is taken is said at once; `expected` daemons of
  // the job will be on this node. `directory` outlives the front.
  void open(const SocketDir& directory, int expected);
  void expect(int daemons);                    // as many as it turned out to be
  void progress(const std::string& text);      // of the load
  void watch(const std::string& socket_name);  // a daemon of this process, about to serve
  // Of the external warm-up: how it went, and the directory of what it left on this node.
  void set_warmup(std::string outcome) { warmup_ = std::move(outcome); }
  void set_engine_caches(std::string root) { engine_caches_ = std::move(root); }
  void serving();  // in the place of a daemon that was replaced, if any
  void ready(HandleKind kind, std::uint64_t rank_bytes);
  void close_health();  // before the sockets of a stop that was asked for
  void stopping();

 private:
  bool is_rank_0() const noexcept { return launch_.coords.global == 0; }

  const cli::ServeOptions& options_;
  const Launch& launch_;
  const RankControl& control_;
  const std::chrono::steady_clock::time_point start_;
  const SocketDir* directory_ = nullptr;
  ServiceManager manager_;
  std::optional<HealthEndpoint> health_;
  std::string warmup_, engine_caches_;
};

}  // namespace preload::run
