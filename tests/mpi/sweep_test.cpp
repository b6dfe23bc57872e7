// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "support/fake_timer.hpp"
#include "warmup/sweep_plan.hpp"
#include "warmup/sweep_report.hpp"
#include "warmup/sweep_table.hpp"
#include "world.hpp"

namespace preload::warmup {
namespace {

using test::FakeTimer;
using testing_mpi::world;
using tuner::Algorithm;
using tuner::Candidate;
using tuner::Protocol;

constexpr Candidate kRing{Algorithm::kRing, Protocol::kSimple};
constexpr Candidate kRingLl{Algorithm::kRing, Protocol::kLl};
constexpr Candidate kTree{Algorithm::kTree, Protocol::kLl};
const Offer kOffer{{kTree, kRingLl, kRing}, kRing, false, 1};

constexpr MessageSizes kSizes{1024, 50000, 2, 2, 64, 1 << 20};
constexpr std::uint64_t kLarge = 64 << 10;

// Tree is far better for small messages, far worse for large ones; another is better by less than
// anything could tell in such noise.
double seconds_of(const SweepPoint& point, const Choice& choice) {
  const double base = 10e-6 + static_cast<double>(point.bytes) * 1e-10;
  if (choice.candidate == kTree) return point.bytes < kLarge ? base / 3 : base * 3;
  return choice.candidate == kRingLl ? base * 0.99 : base;
}

std::uint64_t seed_of(int round) {
  return static_cast<std::uint64_t>(round) * 1000 + static_cast<std::uint64_t>(world().rank());
}

struct Job {
  ParallelSizes sizes;
  std::vector<EngineGroup> groups;
  std::vector<std::vector<tuner::Shape>> shapes;  // by rank

  const std::vector<tuner::Shape>& own() const {
    return shapes.at(static_cast<std::size_t>(world().rank()));
  }
};

// tp and dp 2 where the world has four ranks; `uneven`: the first three are on one node.
Job make_job(bool uneven) {
  Job job;
  const int ranks = world().size();
  job.sizes = {ranks / 2, 1, 2};
  job.groups = engine_groups(job.sizes, world().rank(), true);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<tuner::Shape>& of_rank = job.shapes.emplace_back();
    for (const EngineGroup& group : engine_groups(job.sizes, rank, true)) {
      std::set<int> nodes;
      for (const int member : group.ranks) nodes.insert(uneven && member == 3 ? 1 : 0);
      of_rank.push_back({static_cast<int>(group.ranks.size()), static_cast<int>(nodes.size())});
    }
  }
  return job;
}

SweepResult run(const Job& job, CollectiveTimer& timer, double budget_s,
                std::function<double()> clock) {
  SweepOptions options;
  options.budget_s = budget_s;
  options.clock = std::move(clock);
  return sweep(world(), timer, plan_sweep(job.groups, job.shapes, kSizes), job.shapes, options,
               Cancel());
}

// All that is written, as text.
std::string decision(const Job& job, const SweepResult& result) {
  SweepReport report;
  report.groups.resize(job.groups.size());
  report.result = result;
  std::vector<tuner::Shape> formed;
  for (const auto& of_rank : job.shapes)
    formed.insert(formed.end(), of_rank.begin(), of_rank.end());
  const tuner::TuningTable table =
      make_table(result, 22803, {{"a GPU"}, {world().size(), 2}, world().size()}, formed);
  EXPECT_NO_THROW(tuner::check(table, "the table"));
  return to_json(table) + to_csv(table) + to_json(report);
}

void expect_one_decision(const std::string& mine) {
  const Cancel cancel;
  const std::vector<std::string> all = world().all_gather(mine, {"a test", cancel});
  for (const std::string& each : all) EXPECT_EQ(each, all.front());
}

class SweepOverProcesses : public testing::Test {
 protected:
  void SetUp() override {
    if (world().size() < 2) GTEST_SKIP() << "needs several ranks";
  }
};

TEST_F(SweepOverProcesses, DecidesTheSameOnEveryRankInAnyNoise) {
  int small = 0, right = 0;
  for (int round = 0; round < 6; ++round) {
    const Job job = make_job(round % 2 == 1);
    FakeTimer timer(job.own(), kOffer, seconds_of, seed_of(round), 0.3);
    const SweepResult result = run(job, timer, 60, [] { return 0.0; });
    expect_one_decision(decision(job, result));
    EXPECT_EQ(result.points.size(), result.planned);
    for (const PointResult& point : result.points) {
      if (!is_tunable(point.point.operation)) continue;
      const bool tree = point.chosen && point.measured[*point.chosen].choice.candidate == kTree;
      if (point.point.bytes >= kLarge) {
        EXPECT_FALSE(tree);
      } else {
        ++small;
        if (tree) ++right;
      }
    }
  }
  EXPECT_GE(20 * right, 19 * small) << right << " of " << small;
}

// What helps one rank and hurts another is as slow as it is on that one.
TEST_F(SweepOverProcesses, NoRankDecidesByItsOwnTimes) {
  const Job job = make_job(false);
  FakeTimer timer(
      job.own(), kOffer,
      [](const SweepPoint&, const Choice& choice) {
        if (choice.candidate != kTree) return 20e-6;
        return world().rank() == 0 ? 5e-6 : 40e-6;
      },
      seed_of(1), 0);
  const SweepResult result = run(job, timer, 60, [] { return 0.0; });
  expect_one_decision(decision(job, result));
  for (const PointResult& point : result.points) EXPECT_FALSE(point.chosen);
}

TEST_F(SweepOverProcesses, RankZerosClockEndsItForAll) {
  const Job job = make_job(false);
  FakeTimer timer(job.own(), kOffer, seconds_of, seed_of(2), 0.3);
  int asked = 0;
  // The others' clocks are far ahead, or stand still.
  const auto clock = [&]() -> double {
    if (world().rank() == 0) return static_cast<double>(++asked);
    return world().rank() == 1 ? 1e9 : 0;
  };
  const SweepResult result = run(job, timer, 20, clock);
  EXPECT_GT(result.points.size(), 0U);
  EXPECT_LT(result.points.size(), result.planned);
  expect_one_decision(decision(job, result));
}

TEST_F(SweepOverProcesses, IsLeftToNcclWhereItOffersRanksDifferentChoices) {
  const Job job = make_job(false);
  Offer offer = kOffer;
  if (world().rank() == world().size() - 1) offer.offered.pop_back();
  offer.own = offer.offered.front();
  FakeTimer timer(job.own(), offer, seconds_of, seed_of(3), 0.3);
  const SweepResult result = run(job, timer, 60, [] { return 0.0; });
  expect_one_decision(decision(job, result));
  for (const PointResult& point : result.points) EXPECT_FALSE(point.chosen);
}

TEST_F(SweepOverProcesses, ATimeThatOneRankCannotTakeChoosesNothing) {
  const Job job = make_job(false);
  FakeTimer timer(
      job.own(), kOffer,
      [](const SweepPoint& point, const Choice& choice) {
        const bool lost = world().rank() == world().size() - 1 && choice.candidate;
        return lost ? std::nan("") : seconds_of(point, choice);
      },
      seed_of(4), 0.3);
  const SweepResult result = run(job, timer, 60, [] { return 0.0; });
  expect_one_decision(decision(job, result));
  for (const PointResult& point : result.points) EXPECT_FALSE(point.chosen);
}

}  // namespace
}  // namespace preload::warmup
