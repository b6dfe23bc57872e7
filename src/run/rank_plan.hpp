// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "model/model_spec.hpp"
#include "plan/load_plan.hpp"
#include "run/launch.hpp"

namespace preload::run {

// All that loading needs to know, as values.
struct RankPlan {
  Checkpoint checkpoint;
  ModelSpec spec;
  CopyProgram program;
  LoadPlan load;
};

// Collective. Rank 0 reads index and headers, once per job, and every rank plans its own part from
// the same value. Returns when every rank has planned: nothing is allocated before.
RankPlan plan_rank(Group& group, const cli::ModelOptions& options, const Launch& launch,
                   const Cancel& cancel);

}  // namespace preload::run
