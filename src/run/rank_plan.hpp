// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/mpi_session.hpp"
#include "model/model_spec.hpp"
#include "plan/load_plan.hpp"
#include "plan/read_plan.hpp"
#include "run/launch.hpp"
#include "run/spread_group.hpp"

namespace preload::run {

// What the ranks of a group read for each other, as far as one of them needs to know it.
struct SpreadPlan {
  SpreadGroup group;
  std::vector<std::vector<SlabSpec>> slabs;  // of every member on this rank's node; else empty
  std::vector<ReadPlan> incoming;            // see plan_incoming
  std::size_t most_givers = 0;               // that one of the members has
};

// All that loading needs to know, as values.
struct RankPlan {
  Checkpoint checkpoint;
  ModelSpec spec;
  CopyProgram program;
  LoadPlan load;
  ReadPlan reads;
  SpreadPlan spread;
};

// Whether ranks may hand each other what they read. The same on every rank.
bool may_spread(const cli::ServeOptions& options, const Launch& launch);

// Collective. Rank 0 reads index and headers, once per job, and every rank plans from the same
// value its own part, and what its group reads. Returns when every rank has planned: nothing is
// allocated before.
RankPlan plan_rank(Group& group, const cli::ServeOptions& options, const Launch& launch,
                   const Cancel& cancel);

}  // namespace preload::run
