// SPDX-License-Identifier: Apache-2.0
#include "load/pieces.hpp"

#include <gtest/gtest.h>

namespace preload {
namespace {

constexpr std::uint64_t kChunk = 4096;

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

TEST(Pieces, JoinsRowsThatTouchOnBothSidesOnly) {
  EXPECT_EQ(join_rows(op(10, 8, 8, 8)).rows, 1U);
  EXPECT_EQ(join_rows(op(10, 8, 8, 8)).row_bytes, 80U);
  EXPECT_EQ(join_rows(op(10, 8, 16, 8)).rows, 10U);
  EXPECT_EQ(join_rows(op(10, 8, 8, 16)).rows, 10U);
  EXPECT_EQ(join_rows(op(10, 0, 0, 0)).rows, 0U);
}

TEST(Pieces, JoinsConvertedRowsByTheirOwnSizes) {
  CopyOp widening = op(10, 8, 8, 16);
  widening.from = DType::kBF16;
  widening.to = DType::kF32;
  EXPECT_EQ(join_rows(widening).rows, 1U);
  widening.target_stride = 8;
  EXPECT_EQ(join_rows(widening).rows, 10U);
}

TEST(Pieces, SplitsALongRow) {
  const ChunkList list = cut_into_chunks({op(1, 10000, 0, 0)}, kChunk);
  ASSERT_EQ(list.pieces.size(), 3U);
  EXPECT_EQ(list.pieces[2], (Piece{0, 0, 1, 8192, 10000 - 8192}));
  EXPECT_EQ(list.chunks.size(), 3U);
}

TEST(Pieces, TakesAsManyWholeRowsAsFit) {
  const ChunkList list = cut_into_chunks({op(10, 1000, 5000, 1000)}, kChunk);
  ASSERT_EQ(list.pieces.size(), 3U);
  EXPECT_EQ(list.pieces[0], (Piece{0, 0, 4, 0, 1000}));
  EXPECT_EQ(list.pieces[2], (Piece{0, 8, 2, 0, 1000}));
}

TEST(Pieces, LetsShortOpsShareAChunk) {
  const std::vector<CopyOp> ops(1000, op(1, 16, 0, 0));
  const ChunkList list = cut_into_chunks(ops, kChunk);
  EXPECT_EQ(list.pieces.size(), 1000U);
  EXPECT_EQ(list.chunks.size(), 4U);  // 256 pieces are 4096 bytes
  std::uint64_t bytes = 0;
  for (const Chunk& chunk : list.chunks) {
    EXPECT_LE(chunk.bytes, kChunk);
    bytes += chunk.bytes;
  }
  EXPECT_EQ(bytes, 16000U);
}

TEST(Pieces, ScaleOffsetsInsideConvertedRows) {
  CopyOp widening = op(2, 16384, 20000, 40000);
  widening.from = DType::kBF16;
  widening.to = DType::kF32;
  widening.file_offset = 100;
  widening.source_offset = 10;
  widening.target_offset = 4;
  const Piece piece{0, 1, 1, 4096, 4096};
  EXPECT_EQ(file_offset(widening, piece), 100U + 20000 + 4096);
  EXPECT_EQ(source_offset(widening, piece), 10U + 20000 + 4096);
  EXPECT_EQ(target_offset(widening, piece), 4U + 40000 + 8192);
  EXPECT_EQ(target_bytes(widening, piece), 8192U);
}

TEST(Pieces, KnowWhenOneHashDoesForBothSides) {
  EXPECT_TRUE(hashes_alike(op(1, 100, 7, 9)));
  EXPECT_TRUE(hashes_alike(op(5, 100, 200, 200)));
  EXPECT_FALSE(hashes_alike(op(5, 100, 200, 100)));
  CopyOp shifted = op(1, 100, 0, 0);
  shifted.target_offset = 8;
  EXPECT_FALSE(hashes_alike(shifted));
  CopyOp cast = op(1, 100, 0, 0);
  cast.from = DType::kF32;
  cast.to = DType::kBF16;
  EXPECT_FALSE(hashes_alike(cast));
}

}  // namespace
}  // namespace preload
