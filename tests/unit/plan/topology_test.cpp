// SPDX-License-Identifier: Apache-2.0
#include "plan/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"

namespace preload::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(Topology, CountsTensorParallelFastestAndDataParallelSlowest) {
  const ParallelSizes sizes{2, 3, 4};
  int global = 0;
  for (int dp = 0; dp < 2; ++dp) {
    for (int pp = 0; pp < 3; ++pp) {
      for (int tp = 0; tp < 4; ++tp) {
        const RankCoords rank = coords_of(global, sizes);
        EXPECT_EQ(rank, (RankCoords{global, dp, pp, tp, std::nullopt}));
        ++global;
      }
    }
  }
}

TEST(Topology, AnUnsetDpIsWhatTheRanksLeave) {
  EXPECT_EQ(parallel_sizes(16, std::nullopt, 2, 4), (ParallelSizes{2, 2, 4}));
  EXPECT_EQ(parallel_sizes(8, 2, 1, 4), (ParallelSizes{2, 1, 4}));
}

std::string refusal(int world, std::optional<int> dp, int pp, int tp) {
  try {
    parallel_sizes(world, dp, pp, tp);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUsage);
    return error.what();
  }
  return "nothing was refused";
}

TEST(Topology, SizesThatDoNotMakeTheWorldAreRefusedWithTheNumbers) {
  EXPECT_THAT(
      refusal(6, std::nullopt, 1, 4),
      AllOf(HasSubstr("6 ranks"), HasSubstr("--tensor-parallel-size 4"), HasSubstr("needs 4")));
  EXPECT_THAT(refusal(2, std::nullopt, 1, 4), HasSubstr("needs 4"));
  EXPECT_THAT(refusal(4, 2, 2, 2), HasSubstr("needs 8"));
  EXPECT_THAT(refusal(4, 0, 1, 1), HasSubstr("1 or more"));
  const int huge = std::numeric_limits<int>::max();
  EXPECT_THAT(refusal(4, huge, huge, huge), HasSubstr("more than any launcher starts"));
}

TEST(Topology, NodesHoldContiguousBlocksWhateverTheDistribution) {
  // Cyclic distribution over two nodes, local ranks given.
  const std::vector<RankPlace> cyclic =
      place_ranks({{"b", 0}, {"a", 0}, {"b", 1}, {"a", 1}, {"b", 2}});
  EXPECT_EQ(cyclic, (std::vector<RankPlace>{
                        {0, 0, 0, 3}, {3, 1, 0, 2}, {1, 0, 1, 3}, {4, 1, 1, 2}, {2, 0, 2, 3}}));
  // The launcher's local rank decides the order within a node.
  EXPECT_EQ(place_ranks({{"a", 1}, {"a", 0}}),
            (std::vector<RankPlace>{{1, 0, 1, 2}, {0, 0, 0, 2}}));
  // Without local ranks the MPI rank does.
  EXPECT_EQ(place_ranks({{"a", -1}, {"a", -1}}),
            (std::vector<RankPlace>{{0, 0, 0, 2}, {1, 0, 1, 2}}));
}

TEST(Topology, PlansSpreadRanksEvenlyOverNodes) {
  EXPECT_EQ(place_ranks(5, 2),
            (std::vector<RankPlace>{
                {0, 0, 0, 3}, {1, 0, 1, 3}, {2, 0, 2, 3}, {3, 1, 0, 2}, {4, 1, 1, 2}}));
  EXPECT_THROW(place_ranks(2, 3), Error);
  EXPECT_THROW(place_ranks(2, 0), Error);
}

TEST(Topology, ExpertRanksCountThroughTheRanksOfAStage) {
  ParallelSizes sizes{2, 2, 2};
  EXPECT_FALSE(coords_of(5, sizes).ep);
  sizes.expert_parallel = true;
  const int expected[] = {0, 1, 0, 1, 2, 3, 2, 3};
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(coords_of(rank, sizes).ep, expected[rank]) << rank;
  sizes = {1, 2, 1};
  sizes.expert_parallel = true;
  EXPECT_FALSE(coords_of(1, sizes).ep) << "a stage of one rank spreads nothing";
}

}  // namespace
}  // namespace preload::test
