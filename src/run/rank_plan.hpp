// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "model/model_spec.hpp"
#include "plan/load_plan.hpp"
#include "plan/read_plan.hpp"
#include "run/launch.hpp"

namespace preload::run {

// All that loading needs to know, as values.
struct RankPlan {
  Checkpoint checkpoint;
  ModelSpec spec;
  CopyProgram program;
  LoadPlan load;
  ReadPlan reads;
  std::vector<std::vector<SlabSpec>> node_slabs;  // of every rank of this node
};

// Whether ranks of a node may hand each other what they read. The same on every rank.
bool may_spread(const cli::ServeOptions& options, const Launch& launch);

// Collective. Rank 0 reads index and headers, once per job, and every rank plans from the same
// value its own part, and what its node reads. Returns when every rank has planned: nothing is
// allocated before.
RankPlan plan_rank(Group& group, const cli::ServeOptions& options, const Launch& launch,
                   const Cancel& cancel);

}  // namespace preload::run
