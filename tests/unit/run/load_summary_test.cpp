// SPDX-License-Identifier: Apache-2.0
#include "run/load_summary.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/bytes.hpp"

namespace preload::run {
namespace {

using Ranks = std::vector<RankProgress>;

TEST(LoadSummary, OfOneRankNamesNoOther) {
  const LoadSummary summary = summarise(Ranks{{0, 0, 3 * kGiB, 4 * kGiB, kGiB / 2}}, 0);
  EXPECT_EQ(describe(summary), "loading 3.00 GiB of 4.00 GiB (75 %), 512.00 MiB/s, 2 s left");
}

TEST(LoadSummary, OfOneNodeNamesTheSlowestRankAndItsTime) {
  const LoadSummary summary =
      summarise(Ranks{{0, 0, 3 * kGiB, 4 * kGiB, kGiB}, {1, 0, 1 * kGiB, 4 * kGiB, kGiB}}, 0);
  EXPECT_EQ(describe(summary),
            "loading 4.00 GiB of 8.00 GiB (50 %), 2.00 GiB/s, slowest is rank 1 (25 %), 3 s left");
}

TEST(LoadSummary, OfSeveralNodesHasTheirSums) {
  const LoadSummary summary = summarise(Ranks{{0, 0, 3 * kGiB, 4 * kGiB, kGiB},
                                              {1, 0, 3 * kGiB, 4 * kGiB, kGiB},
                                              {2, 1, 2 * kGiB, 4 * kGiB, kGiB / 2},
                                              {3, 1, 4 * kGiB, 4 * kGiB, 0},
                                              {4, 2, 4 * kGiB, 4 * kGiB, 0}},
                                        0);
  EXPECT_EQ(describe(summary),
            "loading 16.00 GiB of 20.00 GiB (80 %), 2.50 GiB/s on 3 nodes (this one 2.00 GiB/s, "
            "slowest is node 1 with 512.00 MiB/s), slowest is rank 2 (50 %), 4 s left");
}

TEST(LoadSummary, LeavesOutWhatIsNotKnown) {
  EXPECT_EQ(describe(summarise(Ranks{{0, 0, 0, 4 * kGiB, 0}}, 0)), "loading 0 B of 4.00 GiB (0 %)");
  // One rank has not begun, so nobody knows when the job will be done.
  const LoadSummary summary = summarise(Ranks{{0, 0, kGiB, 4 * kGiB, kGiB}, {1, 0, 0, 0, 0}}, 0);
  EXPECT_FALSE(summary.seconds_left);
  EXPECT_EQ(describe(summary),
            "loading 1.00 GiB of 4.00 GiB (25 %), 1.00 GiB/s, slowest is rank 0 (25 %)");
  EXPECT_FALSE(summarise(Ranks{}, 0).seconds_left);
}

TEST(LoadSummary, HasNoSlowestRankWhenAllAreDone) {
  const LoadSummary summary = summarise(Ranks{{0, 0, 9, 9, 0}, {1, 0, 9, 9, 0}}, 0);
  EXPECT_FALSE(summary.slowest_rank);
  EXPECT_EQ(summary.seconds_left, 0.0);
}

}  // namespace
}  // namespace preload::run
