// SPDX-License-Identifier: Apache-2.0
#include "run/node_memory.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

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
  void barrier(const Wait&) override {}
  void finalize(const Wait&) override {}

 private:
  std::deque<std::string> other_;
};

class NodeMemoryTest : public testing::Test {
 protected:
  NodeMemoryTest() {
    plan_.program = random_.program;
    plan_.load = random_.plan;
    // Nothing is handed on by this rank: what counts is what the other one runs into.
    plan_.reads.blocks.resize(1);
    launch_.place = {.global = 0, .node = 0, .local = 0, .local_size = 2};
  }

  const RandomLoad random_{1};
  const std::unique_ptr<SlabMemory> memory_ =
      allocate_slabs(HandleKind::kHost, random_.plan.slabs.slabs, -1);
  RankPlan plan_;
  Launch launch_;
  cli::ServeOptions options_;
  const Cancel cancel_;
};

TEST_F(NodeMemoryTest, LeavesThePlanAsItIsWhereAllCanBeMapped) {
  ScriptedGroup group({"", ""});
  const ReadPlan before = plan_.reads;
  const NodeMemory peers(group, options_, launch_, *memory_, plan_, cancel_);
  EXPECT_EQ(plan_.reads, before);
}

TEST_F(NodeMemoryTest, ReadsAllThatItHoldsWhereAnotherRankCannotMap) {
  ScriptedGroup group({"", "no direct link between the GPUs"});
  const NodeMemory peers(group, options_, launch_, *memory_, plan_, cancel_);
  EXPECT_EQ(plan_.reads, plan_own_reads(held_rows(plan_.program, plan_.load, 0), 0));
  EXPECT_EQ(plan_.reads.sent_bytes, 0U);
}

TEST_F(NodeMemoryTest, EndsTheJobInsteadWhereSpreadingWasDemanded) {
  options_.spread = Spread::kAlways;
  ScriptedGroup group({"", "device\nno direct link between the GPUs"});
  EXPECT_THROW(NodeMemory(group, options_, launch_, *memory_, plan_, cancel_), Error);
}

}  // namespace
}  // namespace preload::run
