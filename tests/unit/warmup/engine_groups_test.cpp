// SPDX-License-Identifier: Apache-2.0
#include "warmup/engine_groups.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace preload::warmup {
namespace {

using testing::ElementsAre;
using Ranks = std::vector<int>;

// vLLM 0.32 parallel_state.py, arange(16).reshape(dp 2, pp 2, tp 4): the groups of rank 6, which is
// (0, 1, 2).
TEST(EngineGroups, AreThoseThatVllmFormsInItsOrder) {
  const auto groups = engine_groups({2, 2, 4}, 6, true);
  EXPECT_THAT(groups,
              ElementsAre(EngineGroup{{GroupKind::kTensor}, {4, 5, 6, 7}, 2},
                          EngineGroup{{GroupKind::kExpert}, {4, 5, 6, 7, 12, 13, 14, 15}, 2},
                          EngineGroup{{GroupKind::kData}, {6, 14}, 0},
                          EngineGroup{{GroupKind::kPipeline}, {2, 6}, 1},
                          EngineGroup{{GroupKind::kWorld},
                                      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                      6}));
}

TEST(EngineGroups, OfTheSameRanksAreOneCommunicator) {
  const auto groups = engine_groups({1, 1, 8}, 3, true);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(describe(groups[0]), "tp, ep, world");
  EXPECT_EQ(groups[0].rank, 3);
}

TEST(EngineGroups, OfOneRankAreNone) {
  EXPECT_TRUE(engine_groups({1, 1, 1}, 0, true).empty());
  const auto groups = engine_groups({1, 4, 1}, 2, false);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(describe(groups[0]), "pp, world");
}

TEST(EngineGroups, AreTheSameKindsInTheSameOrderOnEveryRank) {
  const ParallelSizes sizes{2, 3, 2};
  const auto first = engine_groups(sizes, 0, true);
  for (int global = 0; global < sizes.world(); ++global) {
    const auto groups = engine_groups(sizes, global, true);
    ASSERT_EQ(groups.size(), first.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
      EXPECT_EQ(groups[i].kinds, first[i].kinds);
      EXPECT_EQ(groups[i].ranks.size(), first[i].ranks.size());
      EXPECT_EQ(groups[i].ranks.at(static_cast<std::size_t>(groups[i].rank)), global);
    }
  }
}

}  // namespace
}  // namespace preload::warmup
