// SPDX-License-Identifier: Apache-2.0
#include "run/spread_group.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace preload::run {
namespace {

using testing::HasSubstr;

Launch launch_of(int ranks, int nodes, int self) {
  Launch launch;
  launch.places = place_ranks(ranks, nodes);
  launch.place = launch.places[static_cast<std::size_t>(self)];
  launch.cuda = true;
  return launch;
}

// Cold files on a network file system, hosts with 100 GB/s.
std::vector<SpreadFacts> facts_of(int ranks) {
  return std::vector<SpreadFacts>(static_cast<std::size_t>(ranks),
                                  {false, true, 100e9, std::string()});
}

TEST(SpreadGroup, IsTheNodeWhereThereIsOneOnly) {
  const Launch launch = launch_of(8, 1, 3);
  EXPECT_EQ(wide_group(launch, Spread::kAlways, facts_of(8)), (SpreadGroup{0, 8, 1}));
}

TEST(SpreadGroup, TakesTheNodesTogetherThatFit) {
  EXPECT_EQ(wide_group(launch_of(16, 2, 9), Spread::kAuto, facts_of(16)), (SpreadGroup{0, 16, 2}));
  // 20 nodes of 8: eight at a time, four in the end.
  EXPECT_EQ(wide_group(launch_of(160, 20, 70), Spread::kAuto, facts_of(160)),
            (SpreadGroup{64, 64, 8}));
  EXPECT_EQ(wide_group(launch_of(160, 20, 159), Spread::kAuto, facts_of(160)),
            (SpreadGroup{128, 32, 4}));
  // A node larger than any group is one of its own.
  EXPECT_EQ(wide_group(launch_of(144, 2, 100), Spread::kAuto, facts_of(144)),
            (SpreadGroup{72, 72, 1}));
}

TEST(SpreadGroup, StaysOnTheNodeWhereTheNetworkCannotPay) {
  const Launch launch = launch_of(16, 2, 9);
  const SpreadGroup own = node_group(launch);
  EXPECT_EQ(own, (SpreadGroup{8, 8, 1}));
  auto facts = facts_of(16);
  facts[3].hot = true;
  EXPECT_EQ(wide_group(launch, Spread::kAuto, facts), own);
  EXPECT_EQ(wide_group(launch, Spread::kAlways, facts).nodes, 2);
  facts = facts_of(16);
  facts[3].network = 0;
  EXPECT_EQ(wide_group(launch, Spread::kAuto, facts), own);
  facts = facts_of(16);
  facts[12].no_messages = "libnccl.so.2: cannot open";
  EXPECT_EQ(wide_group(launch, Spread::kAuto, facts), own);
}

TEST(SpreadGroup, NamesTheRankThatCannotTakePartWhereItMust) {
  auto facts = facts_of(16);
  facts[12].no_messages = "libnccl.so.2: cannot open";
  try {
    wide_group(launch_of(16, 2, 9), Spread::kAlways, facts);
    FAIL() << "spread without a way to do it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kLauncher);
    EXPECT_THAT(error.what(), HasSubstr("rank 12"));
    EXPECT_THAT(error.what(), HasSubstr("libnccl.so.2"));
    EXPECT_THAT(error.what(), HasSubstr("--spread auto"));
  }
}

TEST(SpreadGroup, SharesOneFileServerBetweenNodesButNotTheirDisks) {
  const Launch launch = launch_of(16, 2, 9);
  const SpreadGroup wide{0, 16, 2};
  auto facts = facts_of(16);
  const double file = usual_rates(true, false).file;
  EXPECT_DOUBLE_EQ(node_rates(launch, wide, facts).file, file / 2);
  EXPECT_DOUBLE_EQ(wide_rates(launch, wide, facts).file, file);
  EXPECT_DOUBLE_EQ(wide_rates(launch, wide, facts).peer, 100e9 / 8);
  for (SpreadFacts& each : facts) each.network_files = false;
  EXPECT_DOUBLE_EQ(node_rates(launch, wide, facts).file, file);
  EXPECT_DOUBLE_EQ(wide_rates(launch, wide, facts).file, 2 * file);
}

TEST(SpreadGroup, TellsItsFactsAsText) {
  const SpreadFacts facts{true, false, 12.5e9, "a \"quoted\" reason"};
  const SpreadFacts again = decode_spread_facts(encode(facts));
  EXPECT_EQ(again.hot, facts.hot);
  EXPECT_EQ(again.network_files, facts.network_files);
  EXPECT_EQ(again.network, facts.network);
  EXPECT_EQ(again.no_messages, facts.no_messages);
}

}  // namespace
}  // namespace preload::run
