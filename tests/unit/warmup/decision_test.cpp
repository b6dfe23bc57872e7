// SPDX-License-Identifier: Apache-2.0
#include "warmup/decision.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace preload::warmup {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

TEST(Decision, ACollectiveIsAsSlowAsItsSlowestRank) {
  EXPECT_DOUBLE_EQ(slowest_median({{1, 2, 9}, {3, 3, 3}}), 3);
  EXPECT_DOUBLE_EQ(slowest_median({{1, 2, 3, 100}, {0.5, 0.5, 0.5, 0.5}}), 2.5);
}

TEST(Decision, ATimeThatIsNoneNeverWins) {
  EXPECT_TRUE(std::isinf(slowest_median({{1, kNone, 1}, {1, 1, 1}})));
  EXPECT_TRUE(std::isinf(slowest_median({{1, 0, 1}})));
  EXPECT_TRUE(std::isinf(slowest_median({{}})));
  EXPECT_TRUE(std::isinf(slowest_median({})));
  EXPECT_EQ(choose({1, std::numeric_limits<double>::infinity(), kNone}), 0U);
  // Nothing is known to be faster than what could not be timed.
  EXPECT_EQ(choose({std::numeric_limits<double>::infinity(), 1}), 0U);
}

TEST(Decision, KeepsNcclsOwnChoiceWithinTheMargin) {
  EXPECT_EQ(choose({100, 96, 95.5}), 0U);
  EXPECT_EQ(choose({105.001, 100}), 1U);  // 5 % more of them in the same time
  EXPECT_EQ(choose({100, 80, 60, 70}), 2U);
  EXPECT_EQ(choose({100}), 0U);
}

TEST(Decision, AWinnerWinsAgainOrIsNone) {
  const RankTimes own = {{10, 10, 10, 10}, {10, 10, 10, 10}};
  const Confirmation good = confirm(own, {{8, 8, 8, 8}, {9, 9, 9, 9}});
  EXPECT_TRUE(good.holds);
  EXPECT_DOUBLE_EQ(good.default_seconds, 10);
  EXPECT_DOUBLE_EQ(good.seconds, 9);
  EXPECT_FALSE(confirm(own, {{9.8, 9.8, 9.8, 9.8}, {8, 8, 8, 8}}).holds) << "within the margin";
  EXPECT_FALSE(confirm(own, {{8, 8, 8, 8}, {8, 8, 8, kNone}}).holds);
}

TEST(Decision, AWinnerIsFasterInMostRounds) {
  // The median gains a lot, but half of the rounds were slower on some rank.
  const RankTimes own = {{10, 10, 10, 10}, {10, 10, 10, 10}};
  EXPECT_FALSE(confirm(own, {{1, 1, 11, 1}, {1, 11, 1, 1}}).holds);
  EXPECT_TRUE(confirm(own, {{1, 1, 11, 1}, {1, 1, 11, 1}}).holds);
}

}  // namespace
}  // namespace preload::warmup
