// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "base/error.hpp"
#include "unit/load/spread_node.hpp"

namespace preload::test {
namespace {

using testing::HasSubstr;

TEST(SpreadLoad, GivesReplicasTheSameForEveryKindOfMove) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    const RandomLoad random(seed);
    for (const std::size_t ranks : {2U, 3U}) {
      Node node(random.checkpoint, {std::vector<CopyProgram>(ranks, random.program),
                                    std::vector<LoadPlan>(ranks, random.plan)});
      node.load_spread({.threads = 3});
      for (std::size_t i = 0; i < ranks; ++i) node.finish(i);
      node.expect_like_ranks_that_read_alone();
    }
  }
}

TEST(SpreadLoad, GivesTensorParallelRanksTheirSlices) {
  for (const int tp : {2, 4}) {
    const WrittenCheckpoint written(llama_checkpoint({}));
    const ParallelSizes sizes{2, 1, tp};
    Node node(written.checkpoint, plan_ranks(written.checkpoint, sizes, 0, sizes.world()));
    node.load_spread({.threads = 2});
    for (int i = 0; i < sizes.world(); ++i) node.finish(static_cast<std::size_t>(i));
    node.expect_like_ranks_that_read_alone();
  }
}

TEST(SpreadLoad, SendsWhatCannotBeWritten) {
  for (std::uint64_t seed = 11; seed <= 16; ++seed) {
    SCOPED_TRACE(seed);
    const RandomLoad random(seed);
    for (const std::uint32_t per_node : {1U, 2U}) {
      Node node(random.checkpoint, {std::vector<CopyProgram>(4, random.program),
                                    std::vector<LoadPlan>(4, random.plan)});
      node.load_spread({.threads = 3}, per_node);
      for (std::size_t i = 0; i < 4; ++i) node.finish(i);
      node.expect_like_ranks_that_read_alone();
    }
  }
}

TEST(SpreadLoad, SendsSlicesInManySmallRounds) {
  LlamaSize size;
  size.hidden = 256;
  size.intermediate = 1024;
  size.vocab = 2003;
  const WrittenCheckpoint written(llama_checkpoint(size));
  const ParallelSizes sizes{2, 1, 2};
  for (const std::uint32_t per_node : {1U, 2U, 3U}) {
    Node node(written.checkpoint, plan_ranks(written.checkpoint, sizes, 0, sizes.world()));
    node.load_spread({.ring_bytes = 512 * kKiB, .threads = 2}, per_node);
    for (int i = 0; i < sizes.world(); ++i) node.finish(static_cast<std::size_t>(i));
    node.expect_like_ranks_that_read_alone();
  }
}

TEST(SpreadLoad, NamesATensorThatDidNotArrive) {
  const RandomLoad random(3);
  Node node(random.checkpoint, {{random.program, random.program}, {random.plan, random.plan}});
  node.load_spread({});
  node.finish(0);
  // A byte that the other rank wrote is lost.
  for (const ReadBlock& block : node.reads(0).blocks) {
    for (const Delivery& delivery : node.reads(0).deliveries_of(block)) {
      if (delivery.owner != 1 || !delivery.hashed) continue;
      std::byte* const lost = node.memory(1).address(delivery.slab) + delivery.slab_offset;
      *lost ^= std::byte{1};
      try {
        node.finish(1);
        FAIL() << "a wrong byte was not noticed";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::kDevice);
        EXPECT_THAT(error.what(), HasSubstr(random.program.tensors[delivery.tensor].name));
        EXPECT_THAT(error.what(), HasSubstr("--spread never"));
      }
      return;
    }
  }
  FAIL() << "nothing was handed on";
}

}  // namespace
}  // namespace preload::test
