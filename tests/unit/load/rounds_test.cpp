// SPDX-License-Identifier: Apache-2.0
#include "load/rounds.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bytes.hpp"
#include "plan/shared_reads.hpp"

namespace preload::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t kChunk = 64 * kKiB;

// Three ranks: rank 0 reads one block of 100 rows of 1000 bytes, of which rank 1 gets bytes 0 to
// 600 and rank 2 bytes 600 to 1000, and one whole block for itself alone.
ReadPlan columns_plan() {
  ReadPlan plan;
  ReadBlock block;
  block.rows = 100;
  block.row_bytes = 1000;
  block.file_stride = 1000;
  block.count = 2;
  plan.blocks.push_back(block);
  plan.deliveries.push_back({.owner = 1, .slab_offset = 4096, .target_stride = 600, .bytes = 600});
  plan.deliveries.push_back(
      {.owner = 2, .slab_offset = 512, .target_stride = 400, .begin = 600, .bytes = 400});
  ReadBlock own;
  own.row_bytes = 5000;
  own.file_offset = 1 << 20;
  own.first = 2;
  own.count = 1;
  plan.blocks.push_back(own);
  plan.deliveries.push_back({.owner = 0, .bytes = 5000});
  plan.receivers = {1, 2};
  return plan;
}

std::vector<ReadPlan> columns_members() {
  std::vector<ReadPlan> members{columns_plan(), {}, {}};
  for (std::uint32_t i : {1U, 2U}) {
    members[i].self = i;
    members[i].givers = {0};
  }
  return members;
}

TEST(SharedReads, PartsWhatOthersGetFromWhatNobodyElseWants) {
  const ReadParts parts = split_reads(columns_plan());
  ASSERT_EQ(parts.shared.blocks.size(), 1U);
  EXPECT_EQ(parts.shared.deliveries_of(parts.shared.blocks[0]).size(), 2U);
  ASSERT_EQ(parts.own.blocks.size(), 1U);
  EXPECT_EQ(parts.own.blocks[0].file_offset, 1U << 20);
  EXPECT_EQ(parts.own.deliveries_of(parts.own.blocks[0]).front().bytes, 5000U);
  EXPECT_EQ(parts.shared.read_bytes, 100'000U);
  EXPECT_EQ(parts.own.read_bytes, 5000U);
}

TEST(SharedReads, TellsAReceiverOfAllSharedBlocksButOfItsOwnPartAlone) {
  const std::vector<ReadPlan> incoming = plan_incoming(columns_members(), 2);
  ASSERT_EQ(incoming.size(), 1U);
  EXPECT_EQ(incoming[0].self, 0U);
  ASSERT_EQ(incoming[0].blocks.size(), 1U);
  ASSERT_EQ(incoming[0].deliveries.size(), 1U);
  EXPECT_EQ(incoming[0].deliveries[0].begin, 600U);
  EXPECT_THAT(plan_incoming(columns_members(), 0), IsEmpty());
}

TEST(Rounds, GiveBothSidesTheSameMessages) {
  const OutgoingRounds out(split_reads(columns_plan()).shared, kChunk,
                           [](std::uint32_t) { return true; });
  ASSERT_EQ(out.parcels.size(), 2U);  // 65 rows and 35
  for (const std::uint32_t rank : {1U, 2U}) {
    const IncomingRounds in(plan_incoming(columns_members(), rank).front(), kChunk);
    ASSERT_EQ(in.rounds.size(), 2U);
    for (std::size_t round = 0; round < 2; ++round) {
      const Parcel& parcel = out.parcels[round][rank - 1];
      EXPECT_THAT(parcel.ranks, ElementsAre(rank));
      EXPECT_EQ(parcel.bytes, in.rounds[round].bytes);
      EXPECT_EQ(in.rounds[round].segments.size(), parcel.sources.size());
    }
  }
  const IncomingRounds in(plan_incoming(columns_members(), 2).front(), kChunk);
  EXPECT_EQ(in.rounds[0].bytes, 65U * 400);
  EXPECT_THAT(in.rounds[1].segments, ElementsAre(Segment{0, 35, 400, 0, 512 + 65 * 400, 400}));
}

TEST(Rounds, LeaveOutRanksThatAreWrittenTo) {
  const OutgoingRounds out(split_reads(columns_plan()).shared, kChunk,
                           [](std::uint32_t rank) { return rank == 2; });
  ASSERT_EQ(out.parcels[0].size(), 1U);
  EXPECT_THAT(out.parcels[0][0].ranks, ElementsAre(2U));
}

TEST(Rounds, PackWhatReplicasGetOnce) {
  ReadPlan plan;
  ReadBlock block;
  block.row_bytes = 10'000;
  block.count = 4;
  plan.blocks.push_back(block);
  for (const std::uint32_t owner : {0U, 1U, 2U, 3U}) {
    plan.deliveries.push_back({.owner = owner, .slab_offset = owner * 512ULL, .bytes = 10'000});
  }
  plan.deliveries[3].to = DType::kF32;  // 3 wants other bytes of them
  const OutgoingRounds out(plan, kChunk, [](std::uint32_t) { return true; });
  ASSERT_EQ(out.parcels.size(), 1U);
  ASSERT_EQ(out.parcels[0].size(), 2U);
  EXPECT_THAT(out.parcels[0][0].ranks, ElementsAre(1U, 2U));
  EXPECT_EQ(out.parcels[0][0].bytes, 10'000U);
  EXPECT_EQ(out.parcels[0][0].repeats.size(), 1U);
  EXPECT_THAT(out.parcels[0][1].ranks, ElementsAre(3U));
  EXPECT_EQ(out.parcels[0][1].bytes, 20'000U);
  EXPECT_EQ(out.most_bytes, 30'000U);
}

TEST(Rounds, AreSmallerWhereManyRanksSendOrTheRingIsSmall) {
  EXPECT_EQ(round_bytes(1, 512 * kMiB), 8 * kMiB);
  EXPECT_EQ(round_bytes(8, 512 * kMiB), 8 * kMiB);
  EXPECT_EQ(round_bytes(32, 512 * kMiB), 2 * kMiB);
  EXPECT_EQ(round_bytes(1, 8 * kMiB), kMiB);
  EXPECT_EQ(round_bytes(64, 320 * kKiB), 64 * kKiB);
}

}  // namespace
}  // namespace preload::test
