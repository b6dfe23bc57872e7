// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "run/launch.hpp"
#include "run/role_daemon.hpp"
#include "serve/socket_dir.hpp"

namespace preload::run {

// What the keeper has of the role's place, for `daemon` to consider; none in most starts. The
// daemon that it replaces has made its own offer.
void find_offer(const SocketDir& directory, const cli::ServeOptions& options, RoleDaemon& daemon);

// Collective, once the role is planned. Every rank that holds some of the role takes over what was
// offered to it, or none does: loading is a matter of all. Offered memory has to be what the plan
// would load, by full evidence, and a sample of it is hashed again. What is adopted is in
// daemon.memory and daemon.residency afterwards; a checkpoint's payload is not read. What was
// offered and cannot be adopted stays where it is: make_room() looks whether its memory is needed.
bool adopt(Group& group, const cli::ServeOptions& options, const Launch& launch, HandleKind kind,
           RoleDaemon& daemon, const Cancel& cancel);

}  // namespace preload::run
