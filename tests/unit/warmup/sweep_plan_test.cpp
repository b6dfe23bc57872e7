// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace preload::warmup {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using tuner::Algorithm;
using tuner::Protocol;

const MessageSizes kSmall{64, 1000, 0, 2, 4, 1ULL << 30};

TEST(SweepPlan, MeasuresGroupsOfOneShapeOnce) {
  // tp 2, dp 2 on one node: to NCCL both are two ranks on one node.
  const auto groups = engine_groups({2, 1, 2}, 0, false);
  const std::vector<std::vector<tuner::Shape>> same(4, {{2, 1}, {2, 1}, {4, 1}});
  const auto points = plan_sweep(groups, same, kSmall);
  std::set<SweepPoint> messages;
  for (SweepPoint point : points) {
    point.group = 0;
    EXPECT_TRUE(messages.insert(point).second) << point.bytes;
  }
  // A dp group on two nodes is another shape, with a message of its own.
  const std::vector<std::vector<tuner::Shape>> apart(4, {{2, 1}, {2, 2}, {4, 2}});
  EXPECT_EQ(plan_sweep(groups, apart, kSmall).size(), points.size() + 1);
}

TEST(SweepPlan, MeasuresEveryShapeThatAGroupHasSomewhere) {
  const auto groups = engine_groups({2, 1, 2}, 0, false);
  // Three ranks on one node, one on another: the tp groups differ.
  const std::vector<std::vector<tuner::Shape>> shapes = {{{2, 1}, {2, 1}, {4, 2}},
                                                         {{2, 1}, {2, 2}, {4, 2}},
                                                         {{2, 2}, {2, 1}, {4, 2}},
                                                         {{2, 2}, {2, 2}, {4, 2}}};
  const auto points = plan_sweep(groups, shapes, kSmall);
  for (const tuner::Shape shape : {tuner::Shape{2, 1}, tuner::Shape{2, 2}}) {
    EXPECT_TRUE(std::ranges::any_of(points, [&](const SweepPoint& point) {
      return point.group == 0 && point.shape == shape && point.operation == Operation::kAllReduce;
    }));
  }
}

TEST(SweepPlan, BeginsWithWhatDecodingWaitsFor) {
  const auto groups = engine_groups({1, 1, 2}, 0, false);
  const auto points = plan_sweep(groups, {{{2, 1}}, {{2, 1}}}, kSmall);
  EXPECT_EQ(points.front(), (SweepPoint{0, {2, 1}, Operation::kAllReduce, 128, true}));
  const auto rare = std::ranges::find(points, Operation::kBroadcast, &SweepPoint::operation);
  EXPECT_TRUE(std::all_of(rare, points.end(), [](const SweepPoint& point) {
    return point.operation == Operation::kBroadcast || point.operation == Operation::kReduce;
  }));
}

TEST(SweepPlan, TriesWhatIsOfferedBesideNcclsOwnChoice) {
  Offer offer;
  offer.offered = {{Algorithm::kTree, Protocol::kLl}, {Algorithm::kRing, Protocol::kLl}};
  offer.own = tuner::Candidate{Algorithm::kRing, Protocol::kLl};
  EXPECT_THAT(choices_to_try(offer),
              ElementsAre(Choice{tuner::Candidate{Algorithm::kTree, Protocol::kLl}, 0}));
}

TEST(SweepPlan, TriesChannelsWhereNcclBoundsThem) {
  const auto ring = channels_to_try({Algorithm::kRing, Protocol::kSimple}, {2, 2});
  EXPECT_THAT(ring, Contains(Choice{tuner::Candidate{Algorithm::kRing, Protocol::kSimple}, 4}));
  EXPECT_THAT(ring,
              Not(Contains(Choice{tuner::Candidate{Algorithm::kRing, Protocol::kSimple}, 0})));
  EXPECT_THAT(channels_to_try({Algorithm::kCollnetDirect, Protocol::kSimple}, {16, 2}), IsEmpty());
  EXPECT_THAT(channels_to_try({Algorithm::kNvls, Protocol::kSimple}, {16, 2}), IsEmpty());
}

}  // namespace
}  // namespace preload::warmup
