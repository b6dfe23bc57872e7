// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep_table.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace preload::warmup {
namespace {

using tuner::Algorithm;
using tuner::Candidate;
using tuner::Protocol;

constexpr Candidate kTree{Algorithm::kTree, Protocol::kLl};
constexpr Candidate kRing{Algorithm::kRing, Protocol::kSimple};
const tuner::Topology kTopology{{"NVIDIA H200"}, {2, 1}, 2};

PointResult point(std::uint64_t bytes, std::optional<Choice> chosen = std::nullopt) {
  PointResult result;
  result.point = {0, {2, 1}, Operation::kAllReduce, bytes, false};
  result.offer.offered = {kTree, kRing};
  result.offer.own = kRing;
  result.measured = {{Choice{}, 20e-6}};
  if (chosen) {
    result.measured.push_back({*chosen, 10e-6});
    result.chosen = 1;
    result.default_seconds = 22e-6;
    result.chosen_seconds = 11e-6;
  }
  return result;
}

tuner::TuningTable table(std::vector<PointResult> points) {
  SweepResult result;
  result.points = std::move(points);
  tuner::TuningTable made = make_table(result, 22803, kTopology, {{2, 1}, {2, 1}});
  EXPECT_NO_THROW(tuner::check(made, "the table"));
  return made;
}

TEST(SweepTable, SaysWhatWasChosenByWhatWasMeasuredAgain) {
  const auto made = table({point(1024, Choice{kTree, 4})});
  ASSERT_EQ(made.entries.size(), 1U);
  const tuner::Entry& entry = made.entries[0];
  EXPECT_EQ(entry.collective, tuner::Collective::kAllReduce);
  EXPECT_EQ(entry.chosen->candidate, kTree);
  EXPECT_EQ(entry.chosen->channels, 4);
  EXPECT_NEAR(entry.own.microseconds, 22, 1e-9);
  EXPECT_NEAR(entry.chosen->microseconds, 11, 1e-9);
  EXPECT_NEAR(entry.gain(), 1, 1e-9);
  EXPECT_EQ(made.shapes, (std::vector<tuner::Shape>{{2, 1}}));
}

TEST(SweepTable, AChoiceHoldsBetweenSizesThatAgree) {
  const auto made = table({point(4096, Choice{kTree, 0}), point(1024, Choice{kTree, 0})});
  EXPECT_EQ(made.entries[0].min_bytes, 1024U);
  EXPECT_EQ(made.entries[0].max_bytes, 4095U);
  EXPECT_EQ(made.entries[1].min_bytes, 4096U);
  EXPECT_EQ(made.entries[1].max_bytes, 5120U);  // a quarter more
}

TEST(SweepTable, OtherChoicesMeetInTheMiddle) {
  const auto made = table({point(1024, Choice{kTree, 0}), point(4096, Choice{kTree, 2})});
  EXPECT_EQ(made.entries[0].max_bytes, 2048U);
  EXPECT_EQ(made.entries[1].min_bytes, 2049U);
}

TEST(SweepTable, SizesFarApartSayNothingOfThoseInTheMiddle) {
  for (const int channels : {0, 2}) {
    const auto made = table({point(4096, Choice{kTree, 0}), point(65536, Choice{kTree, channels})});
    EXPECT_EQ(made.entries[0].min_bytes, 4096U);
    EXPECT_EQ(made.entries[0].max_bytes, 8192U);
    EXPECT_EQ(made.entries[1].min_bytes, 32768U);
    EXPECT_EQ(made.entries[1].max_bytes, 81920U);
  }
}

TEST(SweepTable, SizesAlikeAloneAreReachedTowardsNcclsOwnChoice) {
  const auto made = table({point(1024), point(4096, Choice{kTree, 0}), point(8192)});
  EXPECT_EQ(made.entries[1].min_bytes, 4096U);
  EXPECT_EQ(made.entries[1].max_bytes, 5120U);
  EXPECT_FALSE(made.entries[0].chosen);
  EXPECT_EQ(made.entries[0].max_bytes, 1024U);
  EXPECT_EQ(table({point(4096, Choice{kTree, 0}), point(4200)}).entries[0].max_bytes, 4199U);
}

TEST(SweepTable, CasesThatNcclTellsApartStandAlone) {
  PointResult registered = point(4096, Choice{kTree, 0});
  registered.offer.registered_buffers = true;
  const auto made = table({point(1024, Choice{kTree, 0}), registered});
  EXPECT_EQ(made.entries[0].max_bytes, 1280U);
  EXPECT_TRUE(made.entries[1].registered_buffers);
}

TEST(SweepTable, LeavesOutWhatNoTunerIsAskedAndWhatHasNoTime) {
  PointResult sent = point(1024);
  sent.point.operation = Operation::kAllToAll;
  PointResult unasked = point(2048);
  unasked.offer = {};
  PointResult untimed = point(4096);
  untimed.measured.front().seconds = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(table({sent, unasked, untimed}).entries.empty());
}

}  // namespace
}  // namespace preload::warmup
