// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "base/fd.hpp"
#include "load/loader.hpp"
#include "run/rank_plan.hpp"
#include "run/rank_role.hpp"
#include "serve/package.hpp"
#include "serve/server.hpp"

namespace preload::run {

// What one rank has of one role, from its lock to its server. Steps are taken in order by RankJob.
struct RoleDaemon {
  explicit RoleDaemon(RankRole rank_role) : role(std::move(rank_role)) {}
  bool is_here() const noexcept { return role.coords.has_value(); }

  RankRole role;
  Fd lock;  // empty where the rank holds nothing of the role
  // --replace: the daemon that has the place until this one serves, and the lock of its successors.
  Fd next_lock;
  std::optional<Predecessor> predecessor;
  RankPlan plan;            // until it is loaded
  std::uint64_t bytes = 0;  // of its memory
  LoadProgress progress;
  std::unique_ptr<SlabMemory> memory;
  std::optional<Residency> residency;
  std::optional<Package> offer;   // what another process had here, until it is adopted or declined
  bool adopted = false;           // it was: nothing is to be loaded
  bool declined = false;          // some rank's was not to be had: everything is to be loaded
  bool keeper_has_other = false;  // what was declined, until this daemon's own deposit replaces it
  Inheritance inheritance;        // what goes on of it beside our own
  std::uint64_t generation = 1;   // of what is loaded here
  std::unique_ptr<Server> server;
};

}  // namespace preload::run
