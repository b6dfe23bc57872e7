// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <list>
#include <optional>
#include <string>
#include <thread>

#include "base/fd.hpp"
#include "run/rank_context.hpp"
#include "run/warmup_facts.hpp"
#include "serve/residency.hpp"
#include "serve/server.hpp"
#include "serve/socket_dir.hpp"

namespace preload::run {

// What the rank holds, served before READY to its warm-up alone: in a directory of mode 0700 below
// the public one, with sockets, locks and state files as ordinary clients expect them. Several
// ranks of a node may share one. The handles are duplicates: whatever a client asks of these
// servers, the memory stays.
class PrivateServing {
 public:
  // Serves from here on, as the plan says. The context outlives it.
  PrivateServing(RankContext& rank, const WarmupPlan& plan);
  ~PrivateServing();  // and everything of it is gone
  PrivateServing(const PrivateServing&) = delete;
  PrivateServing& operator=(const PrivateServing&) = delete;

  const std::string& path() const noexcept { return directory_->path(); }
  // Ends the servers. Leases that are open still at `deadline` go on with the rank's daemons:
  // nothing is freed under a client.
  void end(std::chrono::steady_clock::time_point deadline);

 private:
  struct Served {
    Served(const SocketDir& directory, RoleDaemon& role, Residency residency);
    RoleDaemon& daemon;
    Endpoint endpoint;
    Fd lock;
    Server server;
    std::thread thread;
  };

  void open(RoleDaemon& daemon, const WarmupPlan& plan);
  void stop_servers();
  void close();

  const Launch& launch_;
  const SocketDir& public_directory_;
  const std::string name_;
  std::optional<SocketDir> directory_;
  std::list<Served> served_;
};

// A new name for such a directory.
std::string private_name();
// Removes those whose processes are gone, killed in the midst of a warm-up.
void remove_stale_private(const SocketDir& directory);

}  // namespace preload::run
