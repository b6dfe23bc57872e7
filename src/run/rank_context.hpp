// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "cli/serve_options.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi_session.hpp"
#include "memory/slab.hpp"
#include "run/job_front.hpp"
#include "run/launch.hpp"
#include "run/rank_control.hpp"
#include "run/role_daemon.hpp"
#include "run/state_keeper.hpp"
#include "run/supervision.hpp"
#include "serve/socket_dir.hpp"

namespace preload::run {

// What one rank has, from its launch to its end: given by the caller, then filled phase by phase.
// RankJob says in which order; each phase is a file of its own.
struct RankContext {
  RankContext(const cli::ServeOptions& serve_options, const Launcher& by, const Launch& placed,
              Group& ranks, RankControl& rank_control, Supervision& job);
  const Cancel& cancel() const noexcept { return control.cancel(); }
  std::uint64_t bytes() const noexcept;  // of all roles
  int local_daemons() const noexcept;    // of all roles, on this node

  const cli::ServeOptions& options;
  const Launcher& launcher;
  const Launch& launch;
  Group& group;  // finalised by release_all()
  RankControl& control;
  Supervision& supervision;
  const HandleKind kind;
  std::optional<SocketDir> directory;  // rank_place
  std::list<RoleDaemon> daemons;       // rank_place
  JobFront front;
  std::optional<StateKeeper> keeper;  // rank_place
  std::string tuner_table;            // rank_tuning: path on this node, "" without one
  Fd tuner_table_use;                 // by which no prune removes it while engines may start
};

}  // namespace preload::run
