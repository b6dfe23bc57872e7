// SPDX-License-Identifier: Apache-2.0
#include "run/adoption_sample.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace preload::run {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Shard {
  CopyProgram program;
  LoadPlan plan;
  void add(std::uint32_t slab, std::uint64_t bytes, std::optional<std::uint32_t> alias = {}) {
    TargetTensor tensor;
    tensor.alias = alias;
    program.tensors.push_back(tensor);
    Placement place;
    place.slab = slab;
    place.bytes = bytes;
    plan.slabs.placements.push_back(place);
    if (plan.slabs.slabs.size() <= slab) plan.slabs.slabs.resize(slab + 1);
  }
};

TEST(AdoptionSample, HasTheLargestOfEverySlabThatFitIntoItsShare) {
  Shard shard;
  for (const std::uint64_t bytes : {10, 70, 40, 20}) shard.add(0, bytes);
  for (const std::uint64_t bytes : {5, 90}) shard.add(1, bytes);
  EXPECT_THAT(sample_tensors(shard.program, shard.plan, 200), ElementsAre(1, 3, 0, 5, 4));
}

TEST(AdoptionSample, HasTheSmallestOfASlabThatIsOneHugeTensorOrMore) {
  Shard shard;
  shard.add(0, 1000);
  shard.add(0, 900);
  shard.add(1, 7);
  EXPECT_THAT(sample_tensors(shard.program, shard.plan, 20), ElementsAre(1, 2));
}

TEST(AdoptionSample, LeavesAliasesAndEmptyTensorsOut) {
  Shard shard;
  shard.add(0, 8);
  shard.add(0, 8, 0);
  shard.add(0, 0);
  EXPECT_THAT(sample_tensors(shard.program, shard.plan, 100), ElementsAre(0));
  EXPECT_THAT(sample_tensors({}, {}, 100), IsEmpty());
}

}  // namespace
}  // namespace preload::run
