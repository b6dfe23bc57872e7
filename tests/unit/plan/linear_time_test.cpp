// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "model/layout.hpp"
#include "plan/load_plan.hpp"
#include "support/cpu_time.hpp"
#include "unit/model/fixture.hpp"

namespace preload::test {
namespace {

constexpr int kTensorsOfALayer = 9;

// CPU time of a rank's program and load plan together: the least of a few turns, which is what a
// machine that does something else as well disturbs least.
double seconds_to_plan(int tensors) {
  LlamaSize size;
  size.layers = tensors / kTensorsOfALayer;
  const Checkpoint checkpoint = llama_checkpoint(size);
  const ModelSpec spec = parse_model_spec(checkpoint.config_json, "");
  const ParallelSizes sizes{1, 1, 2};
  const int turns = std::clamp(100'000 / tensors, 3, 20);
  double least = 1e9;
  for (int turn = 0; turn < turns; ++turn) {
    const double start = cpu_seconds();
    const CopyProgram program =
        make_program(checkpoint, spec, LayoutRequest{}, sizes, coords_of(1, sizes));
    check_program(program, checkpoint);
    const LoadPlan plan = plan_load(program, checkpoint);
    const double took = cpu_seconds() - start;
    EXPECT_GE(plan.ops.size(), static_cast<std::size_t>(size.layers));
    least = std::min(least, took);
  }
  return least;
}

TEST(LoadPlan, TakesTimeInProportionToTheTensors) {
  const double thousand = seconds_to_plan(1'000);
  const double ten_thousand = seconds_to_plan(10'000);
  const double hundred_thousand = seconds_to_plan(100'000);
  // Sorting, and caches that no longer hold it all, cost a little more a tensor; a pass over all
  // tensors for each of them would cost ten and a hundred times as much.
  constexpr double kSlack = 4;
  EXPECT_LT(ten_thousand, thousand * 10 * kSlack);
  EXPECT_LT(hundred_thousand, ten_thousand * 10 * kSlack);
  RecordProperty("microseconds_a_tensor", std::to_string(hundred_thousand * 10));
}

}  // namespace
}  // namespace preload::test
