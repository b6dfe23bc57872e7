// SPDX-License-Identifier: Apache-2.0
#include "plan/shards.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace preload::test {
namespace {

TEST(Shards, CutsEvenPartsInRankOrder) {
  EXPECT_EQ(even_shard(12, 3, 0), (AxisShard{{0, 4}, 4}));
  EXPECT_EQ(even_shard(12, 3, 2), (AxisShard{{8, 4}, 4}));
}

TEST(Shards, PadsTheVocabularyBehindItsLastRow) {
  // 32003 rows are padded to 32064, 16032 for each of two ranks.
  EXPECT_EQ(vocab_shard(32003, 2, 0), (AxisShard{{0, 16032}, 16032}));
  EXPECT_EQ(vocab_shard(32003, 2, 1), (AxisShard{{16032, 15971}, 16032}));
  EXPECT_EQ(vocab_shard(128, 2, 1), (AxisShard{{64, 64}, 64}));
  EXPECT_EQ(vocab_shard(65, 4, 3), (AxisShard{{65, 0}, 32}));  // padding alone
}

TEST(Shards, ReplicatesKvHeadsWhenTpExceedsThem) {
  const std::vector<std::int64_t> begins{0, 0, 16, 16};
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(head_shard(2, 16, 4, rank),
              (AxisShard{{begins[static_cast<std::size_t>(rank)], 16}, 16}));
  }
  EXPECT_EQ(head_shard(8, 16, 4, 3), (AxisShard{{96, 32}, 32}));
}

TEST(Shards, HeadsAndRanksMustDivideOneAnother) {
  EXPECT_TRUE(heads_divide(8, 4));
  EXPECT_TRUE(heads_divide(2, 8));
  EXPECT_FALSE(heads_divide(3, 2));
  EXPECT_FALSE(heads_divide(3, 4));
  EXPECT_FALSE(heads_divide(0, 1));
}

// Layer counts of every stage, and that the stages follow each other.
std::vector<std::int64_t> counts(std::int64_t layers, int stages) {
  std::vector<std::int64_t> out;
  std::int64_t next = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const Interval interval = stage_layers(layers, stages, stage);
    EXPECT_EQ(interval.begin, next);
    next += interval.count;
    out.push_back(interval.count);
  }
  EXPECT_EQ(next, layers);
  return out;
}

TEST(Shards, GivesLeftOverLayersToTheStagesBeforeTheLast) {
  using Counts = std::vector<std::int64_t>;
  EXPECT_EQ(counts(32, 4), (Counts{8, 8, 8, 8}));
  EXPECT_EQ(counts(33, 4), (Counts{8, 8, 9, 8}));
  EXPECT_EQ(counts(34, 4), (Counts{8, 9, 9, 8}));
  EXPECT_EQ(counts(35, 4), (Counts{9, 9, 9, 8}));
  EXPECT_EQ(counts(5, 2), (Counts{3, 2}));
  EXPECT_EQ(counts(7, 1), (Counts{7}));
}

}  // namespace
}  // namespace preload::test
