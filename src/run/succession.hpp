// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>

#include "cli/serve_options.hpp"
#include "run/role_daemon.hpp"
#include "serve/socket_dir.hpp"

namespace preload::run {

// Takes the role's place: its lock, or with --replace that of the daemon that runs there, which
// serves on until its successor does. Throws Error(kBusy) when another has it.
void take_place_of(const SocketDir& directory, const cli::ServeOptions& options,
                   RoleDaemon& daemon);

// A role that the replaced process served and its successor does not is asked to end.
void end_left_over(const SocketDir& directory, const std::list<RoleDaemon>& daemons);

}  // namespace preload::run
