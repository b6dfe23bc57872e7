// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <list>

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "run/launch.hpp"
#include "run/role_daemon.hpp"
#include "serve/socket_dir.hpp"

namespace preload::run {

// Takes the role's place: its lock, or with --replace that of the daemon that runs there, which
// serves on until its successor does. Throws Error(kBusy) when another has it.
void take_place_of(const SocketDir& directory, const cli::ServeOptions& options,
                   RoleDaemon& daemon);

// Collective, before memory is allocated. Where what is to be loaded does not fit beside what the
// replaced daemons hold, on any rank, all of these are drained if that was allowed (--drain); they
// serve on when the wait runs out. Throws Error(kMemory) with the remedy where it was not,
// Error(kTimeout) when clients hold on.
void make_room(Group& group, const cli::ServeOptions& options, const Launch& launch,
               HandleKind kind, std::list<RoleDaemon>& daemons, const Cancel& cancel);

// A role that the replaced process served and its successor does not is asked to end.
void end_left_over(const SocketDir& directory, const std::list<RoleDaemon>& daemons);

}  // namespace preload::run
