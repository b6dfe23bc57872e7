// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "model/model_spec.hpp"
#include "plan/load_plan.hpp"
#include "plan/read_plan.hpp"
#include "run/launch.hpp"
#include "run/rank_role.hpp"
#include "run/spread_group.hpp"

namespace preload::run {

// What the ranks of a group read for each other, as far as one of them needs to know it.
struct SpreadPlan {
  SpreadGroup group;
  std::vector<std::vector<SlabSpec>> slabs;  // of every member on this rank's node; else empty
  std::vector<ReadPlan> incoming;            // see plan_incoming
  std::size_t most_givers = 0;               // that one of the members has
};

// All that loading one role needs to know, as values.
struct RankPlan {
  cli::ModelOptions model;  // with a draft's request completed by its target
  Checkpoint checkpoint;
  ModelSpec spec;
  CopyProgram program;
  LoadPlan load;
  ReadPlan reads;
  SpreadPlan spread;
};

// Collective: the checkpoint as rank 0 reads it, without its payload.
Checkpoint share_checkpoint(Group& group, const cli::ModelOptions& options, const Cancel& cancel);

// Whether ranks may hand each other what they read. The same on every rank.
bool may_spread(const cli::ServeOptions& options, const Launch& launch);

// Collective. The role's checkpoint as rank 0 reads it, from which each rank makes by value its own
// part, and what its group reads. `target` is the plan that a draft goes with; nothing, on every
// rank alike and with a warning, for a draft without rules. The caller waits for every rank's plan
// of every role before it allocates.
std::optional<RankPlan> plan_rank(Group& group, const cli::ServeOptions& options,
                                  const Launch& launch, const RankRole& role,
                                  const RankPlan* target, const Cancel& cancel);

}  // namespace preload::run
