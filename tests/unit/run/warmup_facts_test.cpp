// SPDX-License-Identifier: Apache-2.0
#include "run/warmup_facts.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace preload::run {
namespace {

using cli::WarmupScope;

// `ranks` over nodes of `per_node`, each with a GPU of its own.
struct Job {
  Job(ParallelSizes job_sizes, int per_node) : sizes(std::move(job_sizes)) {
    places = place_ranks(sizes.world(), sizes.world() / per_node);
    for (int rank = 0; rank < sizes.world(); ++rank) {
      WarmupFacts own;
      own.addresses = {fmt::format("10.0.0.{}", places[static_cast<std::size_t>(rank)].node)};
      own.free_port = 5000 + rank;
      own.device = fmt::format("gpu-{}", rank);
      own.visible = std::to_string(places[static_cast<std::size_t>(rank)].local);
      own.private_name = fmt::format("warmup-{}", rank);
      own.cache_root = "/cache";
      facts.push_back(own);
    }
  }
  Launch launch(int rank, bool cuda = true) const {
    Launch launch;
    launch.job = "job";
    launch.places = places;
    launch.place = places[static_cast<std::size_t>(rank)];
    launch.sizes = sizes;
    launch.coords = coords_of(rank, sizes);
    launch.cuda = cuda;
    launch.device.device = fmt::format("gpu-{}", rank);
    return launch;
  }
  WarmupPlan plan(int rank, WarmupScope scope, bool cuda = true, bool always = false) const {
    cli::WarmupOptions options;
    options.scope = scope;
    options.always = always;
    return plan_warmup(options, launch(rank, cuda), facts);
  }

  ParallelSizes sizes;
  std::vector<RankPlace> places;
  std::vector<WarmupFacts> facts;
};

TEST(WarmupPlan, HasEveryRankOfTheJobRunItInOneWorld) {
  const Job job({1, 2, 2}, 2);
  for (int rank = 0; rank < 4; ++rank) {
    const WarmupPlan plan = job.plan(rank, WarmupScope::kRank);
    EXPECT_TRUE(plan.needed);
    EXPECT_TRUE(plan.runs_here);
    EXPECT_EQ(plan.private_name, fmt::format("warmup-{}", rank));
    EXPECT_EQ(plan.place.rank, rank);
    EXPECT_EQ(plan.place.world, 4);
    EXPECT_EQ(plan.place.local_rank, rank % 2);
    EXPECT_EQ(plan.place.local_world, 2);
    EXPECT_EQ(plan.place.master_addr, "10.0.0.0");
    EXPECT_EQ(plan.place.master_port, 5000);
    EXPECT_EQ(plan.place.visible_devices, std::to_string(rank % 2));  // its own alone
    EXPECT_EQ(plan.place.device, fmt::format("gpu-{}", rank));
    EXPECT_EQ(plan.private_device, "");
  }
}

TEST(WarmupPlan, HasTheFirstRankOfAReplicaRunItForAllOfIt) {
  const Job job({2, 1, 2}, 4);
  for (int rank = 0; rank < 4; ++rank) {
    const int first = rank / 2 * 2;
    const WarmupPlan plan = job.plan(rank, WarmupScope::kReplica);
    EXPECT_EQ(plan.runs_here, rank == first);
    EXPECT_EQ(plan.private_name, fmt::format("warmup-{}", first));
    EXPECT_EQ(plan.place.rank, 0);
    EXPECT_EQ(plan.place.world, 2);
    EXPECT_EQ(plan.place.local_rank, 0);
    EXPECT_EQ(plan.place.master_addr, "127.0.0.1");
    EXPECT_EQ(plan.place.master_port, 5000 + first);
    EXPECT_EQ(plan.place.visible_devices, first == 0 ? "0,1" : "2,3");
    EXPECT_EQ(plan.devices, (std::vector<std::string>{fmt::format("gpu-{}", first),
                                                      fmt::format("gpu-{}", first + 1)}));
  }
}

TEST(WarmupPlan, GivesAReplicaOnTwoNodesAMasterThatBothReach) {
  const Job job({2, 2, 2}, 2);
  const WarmupPlan plan = job.plan(4, WarmupScope::kReplica);
  EXPECT_TRUE(plan.runs_here);
  EXPECT_EQ(plan.place.world, 4);
  EXPECT_EQ(plan.place.local_world, 2);
  EXPECT_EQ(plan.place.master_addr, "10.0.0.2");
  EXPECT_EQ(plan.place.visible_devices, "0,1");
  EXPECT_EQ(job.plan(7, WarmupScope::kReplica).private_name, "warmup-4");
}

TEST(WarmupPlan, NamesGpusByUuidWhereEveryRankCallsItsOwnTheFirst) {
  Job job({1, 1, 2}, 2);
  for (WarmupFacts& facts : job.facts) facts.visible = "0";
  EXPECT_EQ(job.plan(0, WarmupScope::kReplica).place.visible_devices, "GPU-0,GPU-1");
  EXPECT_EQ(job.plan(1, WarmupScope::kRank).place.visible_devices, "0");
}

TEST(WarmupPlan, CountsHostDevicesAsAClientOfThatDirectoryDoes) {
  Job job({2, 1, 2}, 4);
  for (WarmupFacts& facts : job.facts) facts.visible.clear();
  const WarmupPlan replica = job.plan(3, WarmupScope::kReplica, false);
  EXPECT_EQ(replica.private_device, "host:1");
  EXPECT_EQ(replica.place.visible_devices, "");
  EXPECT_EQ(job.plan(3, WarmupScope::kRank, false).private_device, "host:0");
}

TEST(WarmupPlan, NeedsNothingWhereEveryNodeHasWhatAnEarlierOneLeft) {
  Job job({1, 1, 4}, 2);
  job.facts[0].found = true;  // the first of each node looks for it
  EXPECT_TRUE(job.plan(1, WarmupScope::kRank).needed) << "the second node has not got it";
  job.facts[2].found = true;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_FALSE(job.plan(rank, WarmupScope::kRank).needed);
    EXPECT_FALSE(job.plan(rank, WarmupScope::kRank).runs_here);
  }
  EXPECT_TRUE(job.plan(1, WarmupScope::kRank, true, true).runs_here) << "--warmup-exec-always";
}

TEST(WarmupFacts, TravelAsTheyAre) {
  WarmupFacts facts{{"10.0.0.1", "fe80::1"}, 4711, "gpu-1", "0", "warmup-1", "/c", true};
  EXPECT_EQ(decode_warmup_facts(encode(facts)), facts);
  EXPECT_THROW(decode_warmup_facts("{}"), Error);
}

}  // namespace
}  // namespace preload::run
