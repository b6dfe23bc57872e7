// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/layout.hpp"
#include "plan/read_plan.hpp"

namespace preload::test {

// What some ranks of a job hold.
struct RankPlans {
  std::vector<CopyProgram> programs;
  std::vector<LoadPlan> plans;

  // The same as what planning a node's reads takes.
  std::vector<std::vector<HeldRows>> held() const {
    std::vector<std::vector<HeldRows>> held;
    for (std::uint32_t i = 0; i < plans.size(); ++i) {
      held.push_back(held_rows(programs[i], plans[i], i));
    }
    return held;
  }
};

// Of ranks [first, first + count).
inline RankPlans plan_ranks(const Checkpoint& checkpoint, const ParallelSizes& sizes, int first,
                            int count, std::string_view layout = "vllm",
                            ExpertPlacement placement = ExpertPlacement::kLinear) {
  LayoutRequest request;
  request.layout = layout;
  request.placement = placement;
  RankPlans result;
  for (int rank = first; rank < first + count; ++rank) {
    result.programs.push_back(make_program(checkpoint, parse_model_spec(checkpoint.config_json, ""),
                                           request, sizes, coords_of(rank, sizes)));
    result.plans.push_back(plan_load(result.programs.back(), checkpoint));
  }
  return result;
}

}  // namespace preload::test
