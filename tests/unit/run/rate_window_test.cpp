// SPDX-License-Identifier: Apache-2.0
#include "run/rate_window.hpp"

#include <gtest/gtest.h>

namespace preload::run {
namespace {

using std::chrono::milliseconds;

class RateWindowTest : public testing::Test {
 protected:
  void add(int ms, std::uint64_t bytes) { rate_.add(start_ + milliseconds(ms), bytes); }
  RateWindow rate_;
  const RateWindow::Clock::time_point start_{};
};

TEST_F(RateWindowTest, KnowsNothingWithinTheFirstSecond) {
  EXPECT_FALSE(rate_.bytes_per_s());
  add(0, 10);
  EXPECT_FALSE(rate_.bytes_per_s());
  add(0, 20);
  add(999, 30);
  EXPECT_FALSE(rate_.bytes_per_s());
  add(1000, 110);
  EXPECT_EQ(rate_.bytes_per_s(), 100U);
}

TEST_F(RateWindowTest, LeavesTheWaitForTheFirstByteOut) {
  for (int ms = 0; ms <= 60000; ms += 500) add(ms, 0);
  EXPECT_FALSE(rate_.bytes_per_s());
  add(61000, 500);
  EXPECT_EQ(rate_.bytes_per_s(), 500U);
}

TEST_F(RateWindowTest, ForgetsWhatIsOlderThanTenSeconds) {
  for (int s = 0; s <= 20; ++s) add(s * 1000, 1000U + 100U * static_cast<unsigned>(s));
  EXPECT_EQ(rate_.bytes_per_s(), 100U);
  for (int s = 21; s <= 31; ++s) add(s * 1000, 3000);
  EXPECT_EQ(rate_.bytes_per_s(), 0U);
}

TEST_F(RateWindowTest, BeginsAnewWhenTheCountFalls) {
  add(0, 1000);
  add(2000, 3000);
  add(3000, 10);
  EXPECT_FALSE(rate_.bytes_per_s());
  add(5000, 50);
  EXPECT_EQ(rate_.bytes_per_s(), 20U);
}

TEST(SecondsLeft, AreThereOnlyWhenTheyAreKnown) {
  EXPECT_FALSE(seconds_left(0, 0, 100));
  EXPECT_FALSE(seconds_left(0, 100, std::nullopt));
  EXPECT_FALSE(seconds_left(0, 100, 0));
  EXPECT_EQ(seconds_left(20, 100, 40), 2.0);
  EXPECT_EQ(seconds_left(100, 100, std::nullopt), 0.0);
  EXPECT_EQ(seconds_left(101, 100, 1), 0.0);
}

}  // namespace
}  // namespace preload::run
