// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_timer.hpp"

namespace preload::warmup {
namespace {

using test::FakeTimer;
using tuner::Algorithm;
using tuner::Candidate;
using tuner::Protocol;

constexpr Candidate kRing{Algorithm::kRing, Protocol::kSimple};
constexpr Candidate kTree{Algorithm::kTree, Protocol::kLl};
constexpr Candidate kCollnet{Algorithm::kCollnetDirect, Protocol::kSimple};
const Offer kOffer{{kTree, kRing, kCollnet}, kRing, false, 1};
const std::vector<std::vector<tuner::Shape>> kShapes{{{2, 1}}};

std::vector<SweepPoint> points(std::initializer_list<std::uint64_t> sizes) {
  std::vector<SweepPoint> points;
  for (const std::uint64_t bytes : sizes) {
    points.push_back({0, {2, 1}, Operation::kAllReduce, bytes, false});
  }
  return points;
}

SweepOptions patient() {
  SweepOptions options;
  options.clock = [] { return 0.0; };
  return options;
}

SweepResult run(FakeTimer& timer, const std::vector<SweepPoint>& points,
                const SweepOptions& options = patient()) {
  const auto alone = make_single_group();
  return sweep(*alone, timer, points, kShapes, options, Cancel());
}

TEST(Sweep, ChoosesWhatIsFastestAtEachSize) {
  FakeTimer timer(
      {{2, 1}}, kOffer,
      [](const SweepPoint& point, const Choice& choice) {
        const bool small = point.bytes < 4096;
        return choice.candidate == kTree ? (small ? 10e-6 : 90e-6) : 20e-6;
      },
      1, 0);
  const SweepResult result = run(timer, points({1024, 8192}));
  ASSERT_EQ(result.points.size(), 2U);
  const PointResult& small = result.points[0];
  ASSERT_TRUE(small.chosen);
  EXPECT_EQ(small.measured[*small.chosen].choice, (Choice{kTree, 0}));
  EXPECT_DOUBLE_EQ(small.default_seconds, 20e-6);
  EXPECT_DOUBLE_EQ(small.chosen_seconds, 10e-6);
  EXPECT_FALSE(result.points[1].chosen);
}

TEST(Sweep, TriesChannelsOfWhatIsFastest) {
  FakeTimer timer(
      {{2, 1}}, kOffer,
      [](const SweepPoint&, const Choice& choice) {
        return choice.candidate == kRing && choice.channels == 4 ? 10e-6 : 20e-6;
      },
      1, 0);
  const SweepResult result = run(timer, points({1024}));
  ASSERT_TRUE(result.points[0].chosen);
  EXPECT_EQ(result.points[0].measured[*result.points[0].chosen].choice, (Choice{kRing, 4}));
}

// The candidate alone gains too little, with its channels enough.
TEST(Sweep, KeepsTheChannelsThatMakeTheGain) {
  FakeTimer timer(
      {{2, 1}}, kOffer,
      [](const SweepPoint&, const Choice& choice) {
        if (choice.candidate != kTree) return 20e-6;
        return choice.channels == 4 ? 18.8e-6 : 19.4e-6;
      },
      1, 0);
  const SweepResult result = run(timer, points({1024}));
  ASSERT_TRUE(result.points[0].chosen);
  EXPECT_EQ(result.points[0].measured[*result.points[0].chosen].choice, (Choice{kTree, 4}));
}

TEST(Sweep, KeepsNcclsOwnChoiceWithinTheMargin) {
  FakeTimer timer(
      {{2, 1}}, kOffer,
      [](const SweepPoint&, const Choice& choice) { return choice.candidate ? 19.5e-6 : 20e-6; }, 1,
      0);
  EXPECT_FALSE(run(timer, points({1024})).points[0].chosen);
}

TEST(Sweep, ALuckyWinnerIsFoundOutWhenItIsTriedAgain) {
  int tries = 0;
  FakeTimer timer(
      {{2, 1}}, kOffer,
      [&](const SweepPoint&, const Choice& choice) {
        if (choice.candidate != kTree) return 20e-6;
        return ++tries <= 6 ? 5e-6 : 40e-6;  // as often as it is measured at first
      },
      1, 0);
  EXPECT_FALSE(run(timer, points({1024})).points[0].chosen);
}

TEST(Sweep, WhatIsFarTooSlowIsMeasuredOnce) {
  int slow = 0;
  FakeTimer timer(
      {{2, 1}}, kOffer,
      [&](const SweepPoint&, const Choice& choice) {
        if (choice.candidate == kCollnet) ++slow;
        return choice.candidate == kCollnet ? 1.0 : 20e-6;
      },
      1, 0);
  const SweepResult result = run(timer, points({1024}));
  EXPECT_EQ(slow, 1);
  // It is shown all the same.
  EXPECT_TRUE(std::ranges::any_of(result.points[0].measured, [](const Measured& each) {
    return each.choice.candidate == kCollnet && each.seconds == 1.0;
  }));
}

TEST(Sweep, MeasuresWhatNoTunerIsAskedForAndChoosesNothing) {
  FakeTimer timer(
      {{2, 1}}, kOffer, [](const SweepPoint&, const Choice&) { return 20e-6; }, 1, 0);
  const SweepResult result = run(timer, {{0, {2, 1}, Operation::kAllToAll, 1024, false},
                                         {0, {2, 1}, Operation::kSendReceive, 1024, false}});
  ASSERT_EQ(result.points.size(), 2U);
  for (const PointResult& point : result.points) {
    EXPECT_FALSE(point.chosen);
    ASSERT_EQ(point.measured.size(), 1U);
    EXPECT_DOUBLE_EQ(point.measured[0].seconds, 20e-6);
  }
}

// Within a message, too: one that was begun is not measured in other ways any more.
TEST(Sweep, EndsWhenTheBudgetIsSpent) {
  FakeTimer timer(
      {{2, 1}}, kOffer,
      [](const SweepPoint&, const Choice& choice) {
        return choice.candidate == kTree ? 10e-6 : 20e-6;
      },
      1, 0);
  SweepOptions options = patient();
  options.budget_s = 10;
  options.clock = [&] { return timer.runs == 0 ? 0.0 : 11.0; };
  const SweepResult result = run(timer, points({1024, 2048, 4096}), options);
  ASSERT_EQ(result.points.size(), 1U);
  EXPECT_FALSE(result.points[0].chosen);
  ASSERT_EQ(result.points[0].measured.size(), 1U);
  EXPECT_DOUBLE_EQ(result.points[0].measured[0].seconds, 20e-6);
  EXPECT_EQ(result.planned, 3U);
  EXPECT_DOUBLE_EQ(result.seconds, 11);
  options.budget_s = 0;
  EXPECT_TRUE(run(timer, points({1024}), options).points.empty());
}

// Where graphs do not register their buffers, NCCL asks the same as for what is not captured.
TEST(Sweep, DoesNotMeasureTheSameQuestionTwice) {
  class Deaf final : public CollectiveTimer {
   public:
    Offer offered = kOffer;
    int nccl_version() const override { return 22803; }
    std::vector<tuner::Shape> shapes() const override { return {{2, 1}}; }
    Offer offer(const SweepPoint&) override { return offered; }
    double run(const SweepPoint&, const Choice&, int) override { return 20e-6; }
  } timer;
  const auto alone = make_single_group();
  const std::vector<SweepPoint> both = {{0, {2, 1}, Operation::kAllReduce, 1024, true},
                                        {0, {2, 1}, Operation::kAllReduce, 1024, false}};
  const SweepResult result = sweep(*alone, timer, both, kShapes, patient(), Cancel());
  EXPECT_EQ(result.points.size(), 1U);
  EXPECT_EQ(result.planned, 1U);
  timer.offered = {};  // nothing is known of what NCCL asks: nothing was measured already
  EXPECT_EQ(sweep(*alone, timer, both, kShapes, patient(), Cancel()).points.size(), 2U);
}

TEST(Sweep, SaysHowFarItIs) {
  FakeTimer timer(
      {{2, 1}}, kOffer, [](const SweepPoint&, const Choice&) { return 20e-6; }, 1, 0);
  std::vector<std::string> said;
  SweepOptions options = patient();
  options.progress = [&](const std::string& text) { said.push_back(text); };
  run(timer, points({1024, 2048}), options);
  EXPECT_THAT(said, testing::ElementsAre("1 of 2: all_reduce of 1.00 KiB",
                                         "2 of 2: all_reduce of 2.00 KiB"));
}

}  // namespace
}  // namespace preload::warmup
