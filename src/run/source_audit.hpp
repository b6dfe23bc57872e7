// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/cancel.hpp"
#include "comm/mpi_session.hpp"
#include "load/loader.hpp"
#include "load/source_files.hpp"
#include "plan/key.hpp"
#include "run/rank_plan.hpp"

namespace preload::run {

// Collective. The content hash of every source tensor that some rank consumed, by source: each
// tensor's contributions meet at one rank, are added up, and are shared. What the ranks read but
// did not cover is hashed from its file by that rank. Throws Error(kDevice) when two ranks that
// read the same bytes disagree.
std::vector<SourceHash> audit_sources(Group& group, const RankPlan& plan, const LoadResult& result,
                                      int threads, const ReadOptions& reading,
                                      const Cancel& cancel);

}  // namespace preload::run
