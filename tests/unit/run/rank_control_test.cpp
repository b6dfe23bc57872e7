// SPDX-License-Identifier: Apache-2.0
#include "run/rank_control.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

namespace preload::run {
namespace {

ServeEnd signal_end() { return {ServeEnd::Cause::kSignal, 143, "ended by SIGTERM"}; }

TEST(RankControl, CancelsLoadingWithTheStatusOfWhatEndsIt) {
  RankControl control;
  EXPECT_NO_THROW(control.cancel().check());
  EXPECT_FALSE(control.decided());
  control.end(signal_end());
  try {
    control.cancel().check();
    FAIL() << "went on";
  } catch (const Cancelled& cancelled) {
    EXPECT_EQ(cancelled.status(), 143);
    EXPECT_STREQ(cancelled.what(), "ended by SIGTERM");
  }
}

TEST(RankControl, LetsTheFirstCauseDecide) {
  RankControl control;
  control.fail({2, 3, "a shard is short"});
  control.end(signal_end());
  ASSERT_TRUE(control.decided());
  EXPECT_EQ(control.decided()->status, 3);
  EXPECT_EQ(control.decided()->text, "rank 2: a shard is short");
  EXPECT_EQ(control.failure(), (JobFailure{2, 3, "a shard is short"}));
}

TEST(RankControl, KnowsAFailureThatCameAfterASignal) {
  RankControl control;
  control.end(signal_end());
  control.fail({1, 1, "rank 1 was lost: silence", true});
  EXPECT_EQ(control.decided()->status, 143);
  ASSERT_TRUE(control.failure());
  EXPECT_EQ(control.failure()->rank, 1);
}

TEST(RankControlDeathTest, EndsARankHardThatDoesNotEndInTime) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        RankControl control(std::chrono::seconds(1));
        control.end(signal_end());
        std::this_thread::sleep_for(std::chrono::seconds(20));
      },
      testing::ExitedWithCode(143), "did not end within 1 s after: ended by SIGTERM");
}

TEST(RankControlDeathTest, AllowsAnEndingRankMoreTimeWhenItSaysSo) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        RankControl control(std::chrono::seconds(1));
        control.end(signal_end());
        control.allow(std::chrono::seconds(60));
        std::this_thread::sleep_for(std::chrono::seconds(2));
        std::_Exit(7);
      },
      testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace preload::run
