// SPDX-License-Identifier: Apache-2.0
#include "run/rank_tuning.hpp"

#include <algorithm>

#include "artifact/held_file.hpp"
#include "run/collective_tuning.hpp"

namespace preload::run {

void tune_collectives(RankContext& rank, const warmup::Backend& backend) {
  const RankPlan& plan = rank.daemons.front().plan;
  const bool loaded =
      std::ranges::any_of(rank.daemons, [](const RoleDaemon& daemon) { return !daemon.adopted; });
  CollectiveTuning tuning(rank, {plan.model, plan.checkpoint, plan.spec}, backend);
  rank.tuner_table = tuning.run(loaded ? TuningUse::kReuse : TuningUse::kLookUp).table;
  if (!rank.tuner_table.empty()) rank.tuner_table_use = artifact::hold_file(rank.tuner_table);
}

}  // namespace preload::run
