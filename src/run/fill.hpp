// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "load/loader.hpp"
#include "run/launch.hpp"
#include "run/rank_plan.hpp"

namespace preload::run {

// Reads in flight on one file system that this rank may have.
ReadsInFlight reads_in_flight(const cli::ServeOptions& options, const Launch& launch);

// Collective. Reads this rank's part of what its group reads, hands it on, and waits for what the
// others read for it. Every rank of the job loads the same plan at a time.
LoadResult fill(Group& group, const cli::ServeOptions& options, const Launch& launch,
                RankPlan& plan, SlabMemory& memory, LoadProgress& progress, const Cancel& cancel);

}  // namespace preload::run
