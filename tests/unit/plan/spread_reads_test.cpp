// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "model/layout.hpp"
#include "model/model_layout.hpp"
#include "plan/read_plan.hpp"
#include "plan/spread_choice.hpp"
#include "unit/model/fixture.hpp"
#include "unit/plan/rank_plans.hpp"

namespace preload::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Bytes> file_images(const Checkpoint& checkpoint) {
  std::vector<Bytes> files;
  for (const SourceFile& file : checkpoint.files) files.emplace_back(file.bytes);
  for (const SourceTensor& tensor : checkpoint.tensors) {
    std::ranges::copy(rule_bytes(tensor),
                      files[tensor.file].begin() + static_cast<std::ptrdiff_t>(tensor.offset));
  }
  return files;
}

// The ranks of one node, and all that they would read and hold.
struct Node : RankPlans {
  Checkpoint checkpoint;

  Node(Checkpoint of, const ParallelSizes& sizes, std::string_view layout, int first, int count,
       ExpertPlacement placement = ExpertPlacement::kLinear)
      : RankPlans(plan_ranks(of, sizes, first, count, layout, placement)),
        checkpoint(std::move(of)) {}

  // Every rank's slabs after the reads, one element of the plans at a time.
  std::vector<std::vector<Bytes>> execute(const std::vector<ReadPlan>& reads) const {
    const std::vector<Bytes> files = file_images(checkpoint);
    std::vector<std::vector<Bytes>> slabs(plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i) {
      for (const SlabSpec& slab : plans[i].slabs.slabs) slabs[i].emplace_back(slab.bytes);
    }
    for (const ReadPlan& plan : reads) {
      for (const ReadBlock& block : plan.blocks) {
        EXPECT_EQ(block.file_offset, checkpoint.tensors[block.source].offset + block.source_offset);
        for (const Delivery& to : plan.deliveries_of(block)) {
          EXPECT_LE(to.begin + to.bytes, block.row_bytes);
          EXPECT_EQ(to.slab_offset,
                    plans[to.owner].slabs.placements[to.tensor].offset + to.target_offset);
          for (std::uint64_t row = 0; row < block.rows; ++row) {
            std::memcpy(
                slabs[to.owner][to.slab].data() + to.slab_offset + row * to.target_stride,
                files[block.file].data() + block.file_offset + row * block.file_stride + to.begin,
                to.bytes);
          }
        }
      }
    }
    return slabs;
  }

  // Bytes of the files that some rank needs, each counted once.
  std::uint64_t bytes_needed() const {
    std::vector<std::vector<bool>> needed;
    for (const SourceFile& file : checkpoint.files) needed.emplace_back(file.bytes);
    for (const LoadPlan& plan : plans) {
      for (const CopyOp& op : plan.ops) {
        for (std::uint64_t row = 0; row < op.rows; ++row) {
          const auto begin = needed[op.file].begin() +
                             static_cast<std::ptrdiff_t>(op.file_offset + row * op.file_stride);
          std::fill(begin, begin + static_cast<std::ptrdiff_t>(op.row_bytes), true);
        }
      }
    }
    std::uint64_t bytes = 0;
    for (const auto& file : needed) {
      bytes += static_cast<std::uint64_t>(std::ranges::count(file, true));
    }
    return bytes;
  }

  std::vector<ReadPlan> apart() const {
    return plan_node_reads(held(), Spread::kNever, usual_rates(true, true));
  }
  std::vector<ReadPlan> spread() const { return plan_spread_reads(held(), 0); }
};

std::uint64_t read_bytes(const std::vector<ReadPlan>& plans) {
  return std::accumulate(plans.begin(), plans.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const ReadPlan& p) { return sum + p.read_bytes; });
}

void expect_spread_right(const Node& node) {
  const std::vector<ReadPlan> spread = node.spread();
  EXPECT_EQ(node.execute(spread), node.execute(node.apart()));
  EXPECT_EQ(read_bytes(spread), node.bytes_needed());
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (const ReadPlan& plan : spread) {
    sent += plan.sent_bytes;
    received += plan.received_bytes;
  }
  EXPECT_EQ(sent, received);
}

TEST(SpreadReads, GiveEveryRankTheSameBytesAndReadEachOnce) {
  for (const std::string_view layout : {"vllm", "hf"}) {
    for (const ParallelSizes& sizes :
         {ParallelSizes{2, 1, 1}, {1, 1, 2}, {2, 1, 2}, {3, 2, 1}, {1, 1, 4}, {4, 1, 1}}) {
      SCOPED_TRACE(testing::Message()
                   << layout << " dp " << sizes.dp << " pp " << sizes.pp << " tp " << sizes.tp);
      expect_spread_right(Node(llama_checkpoint({}), sizes, layout, 0, sizes.world()));
    }
  }
}

TEST(SpreadReads, AreRightOnANodeThatHoldsAPartOfTheJob) {
  expect_spread_right(Node(llama_checkpoint({}), {1, 1, 4}, "vllm", 1, 2));
  expect_spread_right(Node(llama_checkpoint({}), {2, 1, 4}, "hf", 2, 3));
}

TEST(SpreadReads, AreRightForEveryFixture) {
  for (const char* name : {"llama", "llama_tied", "qwen2", "qwen3"}) {
    SCOPED_TRACE(name);
    expect_spread_right(Node(fixture_checkpoint(name), {2, 1, 2}, "vllm", 0, 4));
  }
}

// Tensors large enough to be worth several readers.
Checkpoint large_checkpoint() {
  return make_checkpoint(R"({"architectures": ["Some"]})",
                         {{"a", DType::kBF16, {2048, 1024}}, {"b", DType::kBF16, {1536, 2048}}});
}

TEST(SpreadReads, ShareTheWorkOutEvenly) {
  const Node node(large_checkpoint(), {2, 1, 1}, "hf", 0, 2);
  const std::vector<ReadPlan> spread = node.spread();
  ASSERT_EQ(spread.size(), 2U);
  EXPECT_EQ(spread[0].read_bytes, spread[1].read_bytes);
  EXPECT_EQ(spread[0].sent_bytes, spread[0].read_bytes);
  EXPECT_THAT(spread[0].receivers, ElementsAre(1U));
  EXPECT_THAT(spread[0].givers, ElementsAre(1U));
  EXPECT_EQ(node.execute(spread), node.execute(node.apart()));
}

TEST(SpreadReads, OfOwnPartsAloneHandNothingOn) {
  const Node node(large_checkpoint(), {2, 1, 1}, "hf", 0, 1);
  const ReadPlan alone = plan_own_reads(node.held().front(), 0);
  EXPECT_THAT(alone.receivers, IsEmpty());
  EXPECT_EQ(alone.sent_bytes, 0U);
  EXPECT_EQ(node.spread().front(), alone);
}

TEST(SpreadReads, LeaveWhatIsSmallToEveryRank) {
  const Node node(large_checkpoint(), {2, 1, 1}, "hf", 0, 2);
  EXPECT_EQ(plan_spread_reads(node.held(), std::uint64_t{1} << 40), node.apart());
}

// What `preload plan` reckons without planning is what the plan does.
TEST(SpreadReads, AreReckonedRightWithoutAPlan) {
  for (const std::string_view layout : {"vllm", "hf"}) {
    for (const ParallelSizes& sizes :
         {ParallelSizes{2, 1, 1}, {1, 1, 2}, {2, 1, 2}, {3, 2, 1}, {1, 1, 4}, {2, 2, 2}}) {
      SCOPED_TRACE(testing::Message()
                   << layout << " dp " << sizes.dp << " pp " << sizes.pp << " tp " << sizes.tp);
      LlamaSize size;
      size.hidden = 1024;
      size.heads = 16;
      size.head_dim = 64;
      size.intermediate = 2048;
      size.layers = 24;
      const Node node(llama_checkpoint(size), sizes, layout, 0, sizes.world());
      const ModelSpec spec = parse_model_spec(node.checkpoint.config_json, "");
      LayoutRequest request;
      request.layout = layout;
      const auto model = open_layout(node.checkpoint, spec, request, sizes);
      std::vector<RankCoords> ranks;
      for (int rank = 0; rank < sizes.world(); ++rank) ranks.push_back(coords_of(rank, sizes));
      const std::vector<RankReads> reckoned = model->node_reads(ranks, 0);
      const std::vector<ReadPlan> planned = node.spread();
      std::uint64_t read = 0;
      for (std::size_t i = 0; i < reckoned.size(); ++i) {
        read += reckoned[i].read_bytes;
        const auto near = [](std::uint64_t a, std::uint64_t b) {
          return std::abs(static_cast<double>(a) - static_cast<double>(b));
        };
        const double tolerance = 0.05 * static_cast<double>(planned[i].read_bytes);
        EXPECT_LE(near(reckoned[i].read_bytes, planned[i].read_bytes), tolerance) << i;
        EXPECT_LE(near(reckoned[i].sent_bytes, planned[i].sent_bytes), tolerance * 2) << i;
        EXPECT_LE(near(reckoned[i].received_bytes, planned[i].received_bytes), tolerance * 2) << i;
      }
      EXPECT_EQ(read, read_bytes(planned));
      const std::vector<ReadPlan> apart = node.apart();
      for (std::size_t i = 0; i < apart.size(); ++i) {
        const RankReads alone = model->node_reads({&ranks[i], 1}, 0).front();
        EXPECT_EQ(alone.read_bytes, apart[i].read_bytes);
        EXPECT_EQ(alone.gap_bytes, apart[i].gap_bytes);
        EXPECT_EQ(alone.gap_bytes > 0, sizes.tp > 1) << "columns of narrow matrices lie close";
      }
    }
  }
}

// Experts in tensors of their own or in one, sliced or dealt out, transposed, and scales of blocks.
TEST(SpreadReads, OfExpertsAreReckonedRightWithoutAPlan) {
  for (const char* family :
       {"mixtral", "qwen2_moe", "qwen3_moe_7", "deepseek_v3", "gpt_oss", "deepseek_v3_fp8"}) {
    for (const bool expert_parallel : {false, true}) {
      for (const std::string_view name : {"vllm", "hf"}) {
        for (ParallelSizes sizes : {ParallelSizes{1, 1, 2}, {2, 1, 1}, {1, 2, 2}}) {
          sizes.expert_parallel = expert_parallel;
          SCOPED_TRACE(testing::Message()
                       << family << " " << name << " dp " << sizes.dp << " pp " << sizes.pp
                       << " tp " << sizes.tp << " ep " << expert_parallel);
          LayoutRequest request;
          request.layout = name;
          request.placement = ExpertPlacement::kRoundRobin;
          const Node node(fixture_checkpoint(family), sizes, name, 0, sizes.world(),
                          request.placement);
          expect_spread_right(node);
          const ModelSpec spec = parse_model_spec(node.checkpoint.config_json, "");
          const auto model = open_layout(node.checkpoint, spec, request, sizes);
          std::vector<RankCoords> ranks;
          for (int rank = 0; rank < sizes.world(); ++rank) ranks.push_back(coords_of(rank, sizes));
          const std::vector<RankReads> reckoned = model->node_reads(ranks, 0);
          std::uint64_t read = 0;
          for (const RankReads& rank : reckoned) read += rank.read_bytes;
          EXPECT_EQ(read, read_bytes(node.spread()));
          const std::vector<ReadPlan> apart = node.apart();
          for (std::size_t i = 0; i < apart.size(); ++i) {
            const RankReads alone = model->node_reads({&ranks[i], 1}, 0).front();
            EXPECT_EQ(alone.read_bytes, apart[i].read_bytes);
            EXPECT_EQ(alone.gap_bytes, apart[i].gap_bytes);
          }
        }
      }
    }
  }
}

TEST(SpreadChoice, FollowsTheEstimate) {
  const Node node(large_checkpoint(), {2, 1, 1}, "hf", 0, 2);
  const auto reads = [&](Spread spread, const LinkRates& rates) {
    return read_bytes(plan_node_reads(node.held(), spread, rates));
  };
  const std::uint64_t once = node.bytes_needed();
  EXPECT_EQ(reads(Spread::kAuto, usual_rates(true, true)), once);    // two GPUs, one page cache
  EXPECT_EQ(reads(Spread::kAuto, usual_rates(true, false)), once);   // one disk
  EXPECT_EQ(reads(Spread::kAuto, usual_rates(false, false)), once);  // one disk
  EXPECT_EQ(reads(Spread::kAuto, usual_rates(false, true)), 2 * once)
      << "in host memory handing on is the same work as reading";
  EXPECT_EQ(reads(Spread::kNever, usual_rates(true, false)), 2 * once);
  EXPECT_EQ(reads(Spread::kAlways, usual_rates(false, true)), once);
}

TEST(SpreadChoice, EstimatesTheSlowestPart) {
  const std::vector<RankReads> plans{{.read_bytes = 90, .gap_bytes = 10, .sent_bytes = 50},
                                     {.read_bytes = 20, .received_bytes = 50}};
  EXPECT_DOUBLE_EQ(estimate_seconds(plans, {60, 200, 200}), 2.0);    // files: 120 / 60
  EXPECT_DOUBLE_EQ(estimate_seconds(plans, {1000, 9, 200}), 10.0);   // the link: 90 / 9
  EXPECT_DOUBLE_EQ(estimate_seconds(plans, {1000, 1000, 5}), 10.0);  // peers: 50 / 5
  EXPECT_DOUBLE_EQ(estimate_seconds(plans, {60, 0, 25}), 4.0);       // host memory: both
}

TEST(SpreadChoice, NamesGoBothWays) {
  for (const Spread spread : {Spread::kAuto, Spread::kAlways, Spread::kNever}) {
    EXPECT_EQ(spread_from_name(spread_name(spread)), spread);
  }
  EXPECT_FALSE(spread_from_name("sometimes"));
}

}  // namespace
}  // namespace preload::test
