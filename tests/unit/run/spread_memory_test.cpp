// SPDX-License-Identifier: Apache-2.0
#include "run/spread_memory.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/spread_choice.hpp"
#include "unit/load/random_load.hpp"

namespace preload::run {
namespace {

using test::RandomLoad;

// Rank 0 of a node of two; what the other one says in each gathering is scripted.
class ScriptedGroup final : public Group {
 public:
  explicit ScriptedGroup(std::deque<std::string> other) : other_(std::move(other)) {}
  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return 2; }
  std::vector<std::string> all_gather(std::string_view mine, const Wait&) override {
    const std::string theirs = other_.empty() ? std::string() : other_.front();
    if (!other_.empty()) other_.pop_front();
    return {std::string(mine), theirs};
  }
  std::string broadcast(std::string_view mine, int, const Wait&) override {
    return std::string(mine);
  }
  std::vector<std::string> all_to_all(const std::vector<std::string>& out, const Wait&) override {
    return out;
  }
  void exchange(std::span<const GroupMessage>, std::span<const GroupMessage>,
                const Wait&) override {}
  void barrier(const Wait&) override {}
  void finalize(const Wait&) override {}

 private:
  std::deque<std::string> other_;
};

class SpreadMemoryTest : public testing::Test {
 protected:
  SpreadMemoryTest() {
    plan_.program = random_.program;
    plan_.load = random_.plan;
    plan_.spread.group = {0, 2, 1};
    plan_.spread.slabs = {random_.plan.slabs.slabs, random_.plan.slabs.slabs};
    place(0, 0);
  }
  void place(int node_of_first, int node_of_second) {
    const bool together = node_of_first == node_of_second;
    const int size = together ? 2 : 1;
    launch_.places = {{0, node_of_first, 0, size}, {1, node_of_second, together ? 1 : 0, size}};
    launch_.place = launch_.places[0];
  }
  // This rank is handed something by the other one, which it needs no descriptors for.
  void be_handed_something() {
    ReadPlan& giver = plan_.spread.incoming.emplace_back();
    giver.self = 1;
    giver.blocks.resize(1);
    plan_.spread.most_givers = 1;
  }

  const RandomLoad random_{1};
  const std::unique_ptr<SlabMemory> memory_ =
      allocate_slabs(HandleKind::kHost, random_.plan.slabs.slabs, -1);
  RankPlan plan_;
  Launch launch_;
  cli::ServeOptions options_;
  const Cancel cancel_;
};

TEST_F(SpreadMemoryTest, WritesWhereAllCanBeMapped) {
  be_handed_something();
  ScriptedGroup group({"", ""});
  const ReadPlan before = plan_.reads;
  const SpreadMemory others(group, options_, launch_, *memory_, plan_, cancel_);
  EXPECT_EQ(plan_.reads, before);
  EXPECT_EQ(others.messages(), nullptr);
}

TEST_F(SpreadMemoryTest, SendsMessagesWhereARankOfItsNodeCannotMap) {
  be_handed_something();
  ScriptedGroup group({"", "no direct link between the GPUs", "messages"});
  const ReadPlan before = plan_.reads;
  const SpreadMemory others(group, options_, launch_, *memory_, plan_, cancel_);
  EXPECT_EQ(plan_.reads, before);
  ASSERT_NE(others.messages(), nullptr);
  EXPECT_EQ(others.messages()->incoming.size(), 1U);
  EXPECT_EQ(others.address(1, 0), nullptr);
}

TEST_F(SpreadMemoryTest, SendsMessagesToOtherNodes) {
  place(0, 1);
  plan_.spread.group.nodes = 2;
  be_handed_something();
  ScriptedGroup group({"", "", "messages"});
  const SpreadMemory others(group, options_, launch_, *memory_, plan_, cancel_);
  ASSERT_NE(others.messages(), nullptr);
  EXPECT_EQ(others.messages()->round_bytes, 8 * kMiB);
}

TEST_F(SpreadMemoryTest, ReadsAllThatItHoldsWhereAnotherRankHasNoWayToTheOthers) {
  place(0, 1);
  be_handed_something();
  ScriptedGroup group({"", "", "messages", "no NCCL"});
  const SpreadMemory others(group, options_, launch_, *memory_, plan_, cancel_);
  EXPECT_EQ(others.messages(), nullptr);
  EXPECT_EQ(plan_.reads, plan_own_reads(held_rows(plan_.program, plan_.load, 0), 0));
  EXPECT_EQ(plan_.reads.sent_bytes, 0U);
}

TEST_F(SpreadMemoryTest, EndsTheJobInsteadWhereSpreadingWasDemanded) {
  options_.spread = Spread::kAlways;
  place(0, 1);
  be_handed_something();
  ScriptedGroup group({"", "", "messages", "launcher\nno NCCL"});
  EXPECT_THROW(SpreadMemory(group, options_, launch_, *memory_, plan_, cancel_), Error);
}

}  // namespace
}  // namespace preload::run
