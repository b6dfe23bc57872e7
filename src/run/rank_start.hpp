// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "cli/serve_options.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi_session.hpp"
#include "run/launch.hpp"
#include "run/rank_control.hpp"
#include "run/supervision.hpp"

namespace preload::run {

// What every rank of a job begins with: signals, the launcher's life, the group of ranks, the
// checks of the launch, supervision. `job` does the rest; its status is returned. Throws Error,
// Cancelled.
using RankBody = std::function<int(const Launch&, Group&, RankControl&, Supervision&)>;
int start_rank(const cli::ServeOptions& options, const Launcher& launcher, const RankBody& job);

}  // namespace preload::run
