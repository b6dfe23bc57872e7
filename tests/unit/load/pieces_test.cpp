// SPDX-License-Identifier: Apache-2.0
#include "load/pieces.hpp"

#include <gtest/gtest.h>

#include "load/ring.hpp"
#include "plan/slab_layout.hpp"

namespace preload {
namespace {

constexpr std::uint64_t kChunk = 4096;

ReadBlock block(std::uint64_t rows, std::uint64_t row_bytes, std::uint64_t file_stride = 0) {
  ReadBlock block;
  block.rows = rows;
  block.row_bytes = row_bytes;
  block.file_stride = file_stride;
  return block;
}

ChunkList cut(const std::vector<ReadBlock>& blocks) { return cut_into_chunks(blocks, kChunk); }

// A program with one tensor, whose single op is the given one.
ReadPlan plan_of(const CopyOp& op, DType dtype) {
  CopyProgram program;
  TargetTensor tensor;
  tensor.name = "t";
  tensor.dtype = dtype;
  tensor.shape = {1 << 20};
  tensor.strides = {1};
  program.tensors.push_back(tensor);
  LoadPlan plan;
  plan.slabs.slabs.resize(1);
  plan.slabs.placements.push_back({0, 0, 1 << 24});
  plan.ops.push_back(op);
  return plan_own_reads(held_rows(program, plan, 0), 0);
}

CopyOp op(std::uint64_t rows, std::uint64_t row_bytes, std::uint64_t file_stride,
          std::uint64_t target_stride) {
  CopyOp op;
  op.rows = rows;
  op.row_bytes = row_bytes;
  op.file_stride = file_stride;
  op.target_stride = target_stride;
  op.from = op.to = DType::kU8;
  return op;
}

TEST(OwnReads, JoinRowsThatTouchOnBothSidesOnly) {
  const ReadBlock touching = plan_of(op(10, 8, 8, 8), DType::kU8).blocks.at(0);
  EXPECT_EQ(touching.rows, 1U);
  EXPECT_EQ(touching.row_bytes, 80U);
  EXPECT_EQ(plan_of(op(10, 8, 16, 8), DType::kU8).blocks.at(0).rows, 10U);
  EXPECT_EQ(plan_of(op(10, 8, 8, 16), DType::kU8).blocks.at(0).rows, 10U);
  EXPECT_TRUE(plan_of(op(10, 0, 0, 0), DType::kU8).blocks.empty());
}

TEST(OwnReads, JoinConvertedRowsByTheirOwnSizes) {
  CopyOp widening = op(10, 8, 8, 16);
  widening.from = DType::kBF16;
  widening.to = DType::kF32;
  EXPECT_EQ(plan_of(widening, DType::kF32).blocks.at(0).rows, 1U);
  widening.target_stride = 8;
  EXPECT_EQ(plan_of(widening, DType::kF32).blocks.at(0).rows, 10U);
}

TEST(Pieces, SplitsALongRow) {
  const ChunkList list = cut({block(1, 10000)});
  ASSERT_EQ(list.pieces.size(), 3U);
  EXPECT_EQ(list.pieces[2], (Piece{0, 0, 1, 8192, 10000 - 8192}));
  EXPECT_EQ(list.chunks.size(), 3U);
}

TEST(Pieces, TakesAsManyWholeRowsAsFit) {
  const ChunkList list = cut({block(10, 1000, 5000)});
  ASSERT_EQ(list.pieces.size(), 3U);
  EXPECT_EQ(list.pieces[0], (Piece{0, 0, 4, 0, 1000}));
  EXPECT_EQ(list.pieces[2], (Piece{0, 8, 2, 0, 1000}));
}

TEST(Pieces, LetsShortBlocksShareAChunk) {
  const ChunkList list = cut(std::vector<ReadBlock>(1000, block(1, 16)));
  EXPECT_EQ(list.pieces.size(), 1000U);
  EXPECT_EQ(list.chunks.size(), 4U);  // 256 pieces are 4096 bytes
  std::uint64_t bytes = 0;
  for (const Chunk& chunk : list.chunks) {
    EXPECT_LE(chunk.bytes, kChunk);
    bytes += chunk.bytes;
  }
  EXPECT_EQ(bytes, 16000U);
}

TEST(Pieces, SkipsBlocksWithoutBytes) {
  const ChunkList list = cut({block(0, 8), block(8, 0), block(1, 8)});
  ASSERT_EQ(list.pieces.size(), 1U);
  EXPECT_EQ(list.pieces[0].block, 2U);
}

TEST(Batches, TakeWholeChunksAndJoinWhatTouches) {
  const ChunkList list = cut({block(1, 3 * kChunk), block(10, 1000, 5000)});
  const BatchList grouped = group_chunks(list, 2 * kChunk);
  ASSERT_EQ(grouped.batches.size(), 3U);
  EXPECT_EQ(grouped.batches[0].first, 0U);
  EXPECT_EQ(grouped.batches[0].count, 2U);
  ASSERT_EQ(grouped.batches[0].placed.count, 1U);
  EXPECT_EQ(grouped.pieces[0], (Piece{0, 0, 1, 0, 2 * kChunk}));
  // The long row's end and the first rows of the other block share a batch.
  ASSERT_EQ(grouped.batches[1].placed.count, 2U);
  EXPECT_EQ(grouped.pieces[1], (Piece{0, 0, 1, 2 * kChunk, kChunk}));
  EXPECT_EQ(grouped.pieces[2], (Piece{1, 0, 4, 0, 1000}));
  EXPECT_EQ(grouped.pieces[3], (Piece{1, 4, 6, 0, 1000}));
  std::uint64_t bytes = 0;
  for (const Batch& batch : grouped.batches) bytes += batch.placed.bytes;
  EXPECT_EQ(bytes, 3 * kChunk + 10000);
}

TEST(Batches, HoldAChunkThatIsLargerThanABatch) {
  const BatchList grouped = group_chunks(cut({block(1, 2 * kChunk)}), 16);
  EXPECT_EQ(grouped.batches.size(), 2U);
}

TEST(Shares, CutAPieceByWhatADeliveryTakes) {
  const Delivery right{.slab_offset = 100,
                       .target_offset = 40,
                       .target_stride = 64,
                       .begin = 64,
                       .bytes = 64,
                       .from = DType::kU8,
                       .to = DType::kU8};
  EXPECT_FALSE(share_of({0, 0, 4, 0, 64}, right));
  const auto whole = share_of({0, 2, 4, 0, 128}, right);
  ASSERT_TRUE(whole);
  EXPECT_EQ(whole->begin, 64U);
  EXPECT_EQ(whole->bytes, 64U);
  EXPECT_EQ(whole->slab_offset, 100U + 2 * 64);
  EXPECT_EQ(whole->target_offset, 40U + 2 * 64);
  EXPECT_FALSE(goes_straight({0, 2, 4, 0, 128}, right, *whole));
  const auto part = share_of({0, 0, 1, 80, 16}, right);
  ASSERT_TRUE(part);
  EXPECT_EQ(part->begin, 0U);
  EXPECT_EQ(part->bytes, 16U);
  EXPECT_EQ(part->slab_offset, 116U);
  EXPECT_TRUE(goes_straight({0, 0, 1, 80, 16}, right, *part));
}

TEST(Shares, ScaleOffsetsInsideConvertedRows) {
  const Delivery widening{.slab_offset = 4,
                          .target_offset = 4,
                          .target_stride = 40000,
                          .begin = 0,
                          .bytes = 16384,
                          .from = DType::kBF16,
                          .to = DType::kF32};
  const auto share = share_of({0, 1, 1, 4096, 4096}, widening);
  ASSERT_TRUE(share);
  EXPECT_EQ(share->target_offset, 4U + 40000 + 8192);
  EXPECT_EQ(share->target_bytes, 8192U);
  EXPECT_FALSE(goes_straight({0, 1, 1, 4096, 4096}, widening, *share));
}

TEST(Hashes, ServeBothSidesOnlyWhereNothingMoves) {
  Delivery same{.target_stride = 9, .begin = 0, .bytes = 100, .from = DType::kU8, .to = DType::kU8};
  EXPECT_TRUE(hashes_alike(block(1, 100, 7), same));
  EXPECT_FALSE(hashes_alike(block(2, 100, 7), same));
  EXPECT_FALSE(hashes_alike(block(1, 101, 7), same)) << "a part of the row";
  same.target_offset = 8;
  EXPECT_FALSE(hashes_alike(block(1, 100, 7), same));
  same.target_offset = 0;
  same.from = DType::kBF16;
  EXPECT_FALSE(hashes_alike(block(1, 100, 7), same));
}

TEST(HostRing, GivesThreadsUpBeforeChunksGetTooSmall) {
  const RingShape roomy = shape_host_ring(512 * kMiB, 16, kMiB);
  EXPECT_EQ(roomy.threads, 16);
  EXPECT_EQ(roomy.chunk_bytes, kMiB);
  const RingShape tiny = shape_host_ring(kMiB, 16, kMiB);
  EXPECT_EQ(tiny.threads, 8);
  EXPECT_EQ(tiny.chunk_bytes, 64 * kKiB);
  EXPECT_THROW(shape_host_ring(128 * kKiB - 1, 16, kMiB), Error);
}

TEST(BatchRing, FitsItsBytesAndHasABatchToReadWhileOthersAreCopied) {
  const BatchRingShape roomy = shape_batch_ring(512 * kMiB, 12, 16 * kMiB, 512 * kKiB);
  EXPECT_EQ(roomy.threads, 12);
  EXPECT_EQ(roomy.batch_bytes, 16 * kMiB);
  EXPECT_EQ(roomy.slots, 4);
  EXPECT_EQ(shape_batch_ring(512 * kMiB, 12, 16 * kMiB, 4 * kMiB).slots, 6);
  for (const std::uint64_t ring : {320 * kKiB, kMiB, 3 * kMiB, 20 * kMiB, 512 * kMiB}) {
    SCOPED_TRACE(ring);
    const BatchRingShape shape = shape_batch_ring(ring, 16, 16 * kMiB, 512 * kKiB);
    EXPECT_LE(shape.ring_bytes(), ring);
    EXPECT_GE(shape.threads, 1);
    EXPECT_GE(shape.slots, 4);
    EXPECT_LE(shape.chunk_bytes, shape.batch_bytes);
  }
  EXPECT_THROW(shape_batch_ring(320 * kKiB - 1, 16, 16 * kMiB, 512 * kKiB), Error);
}

}  // namespace
}  // namespace preload
