// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>

#include "run/rank_context.hpp"
#include "serve/server.hpp"

namespace preload::run {

// The last phase before the end: one server a role, each on a thread of its own, since they share
// nothing but the process. Outlives its servers' loops.
class RankServing {
 public:
  explicit RankServing(RankContext& rank) : rank_(rank) {}
  // Binds, says BOUND, and serves until the rank is to end.
  ServeEnd run();

 private:
  void open(RoleDaemon& daemon);
  ServeEnd serve(RoleDaemon& daemon);  // until its server ends
  void leave_place_of(const RoleDaemon& daemon);
  void admitted(RoleDaemon& daemon);

  RankContext& rank_;
  std::atomic<std::size_t> roles_served_ = 0, roles_to_admit_ = 0;
};

}  // namespace preload::run
