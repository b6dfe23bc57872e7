// SPDX-License-Identifier: Apache-2.0
#include "client/region.hpp"

#include <gtest/gtest.h>

#include "support/temp_dir.hpp"
#include "unit/client/live_server.hpp"

namespace preload::client {
namespace {

wire::ManifestTensor strided(DType dtype, const Dims& shape, const Dims& strides,
                             std::uint64_t bytes) {
  wire::ManifestTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.strides = strides;
  tensor.offset = 512;
  tensor.bytes = bytes;
  return tensor;
}

TEST(Regions, OfARowMajorTensorAreOne) {
  const auto regions = row_major_regions(strided(DType::kBF16, {4, 6}, {6, 1}, 48), 7);
  EXPECT_EQ(regions, (std::vector<Region>{{7, 0, 512, 1, 48, 0, 0, 0}}));
}

TEST(Regions, OfPaddedRowsAreTheRows) {
  const auto regions = row_major_regions(strided(DType::kBF16, {4, 6}, {8, 1}, 60), 0);
  EXPECT_EQ(regions, (std::vector<Region>{{0, 0, 512, 4, 12, 16, 0, 12}}));
}

TEST(Regions, OfATransposeRunAlongMemory) {
  // Element (i, j) of [4, 3] at i + 4 j; in row-major order at 3 i + j.
  const auto regions = row_major_regions(strided(DType::kF32, {4, 3}, {1, 4}, 48), 0);
  EXPECT_EQ(regions, (std::vector<Region>{{0, 0, 512, 4, 4, 4, 0, 12},
                                          {0, 0, 528, 4, 4, 4, 4, 12},
                                          {0, 0, 544, 4, 4, 4, 8, 12}}));
}

TEST(Regions, OfATensorWithoutElementsAreNone) {
  EXPECT_TRUE(row_major_regions(strided(DType::kF32, {0, 3}, {3, 1}, 0), 0).empty());
}

TEST(Regions, LargerThanAPieceAreCut) {
  const RegionPieces cut = cut_into_pieces(
      {{0, 0, 0, 1, 2 * kPieceBytes + 5, 0, 0, 0}, {1, 0, 2 * kPieceBytes + 8, 1, 8, 0, 0, 0}});
  ASSERT_EQ(cut.pieces.size(), 3U);
  EXPECT_EQ(cut.pieces[1].offset, kPieceBytes);
  EXPECT_EQ(cut.pieces[2].bytes, 16U);  // the rest of the first and the second share one
  EXPECT_EQ(cut.first, (std::vector<std::size_t>{0, 1, 2, 4}));
  EXPECT_EQ(cut.regions[2].index_offset, 2 * kPieceBytes);
  EXPECT_EQ(cut.regions[2].row_bytes, 5U);
}

TEST(Regions, OfManyRowsAreCutBetweenRows) {
  const std::uint64_t stride = kPieceBytes / 3;
  const RegionPieces cut = cut_into_pieces({{0, 0, 0, 7, 100, stride, 0, 100}});
  std::uint64_t rows = 0;
  for (const Region& region : cut.regions) {
    EXPECT_EQ(region.index_offset, rows * 100);
    EXPECT_EQ(region.memory_offset, rows * stride);
    rows += region.rows;
  }
  EXPECT_EQ(rows, 7U);
  for (const Piece& piece : cut.pieces) EXPECT_LE(piece.bytes, kPieceBytes);
}

TEST(Regions, HashToWhatTheManifestSays) {
  const test::TempDir directory;
  // Larger than a piece, so that a tensor is put together from several.
  test::FixtureShard shard(32 << 20);
  std::string large(kPieceBytes + 12345, '\0');
  for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * i + 7 * i);
  shard.add("large", DType::kU8, {static_cast<std::int64_t>(large.size())}, large);
  std::string columns(1000 * 700 * 2, '\0');
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = static_cast<char>(i * 31 + i / 255);
  shard.add_strided("columns", DType::kBF16, {1000, 700}, {1, 1000}, columns);
  shard.add_strided("padded", DType::kF32, {2, 3, 5}, {40, 10, 1}, columns.substr(0, 120));
  const test::LiveServer server(directory / "run", shard);
  AttachOptions options;
  options.connect.wanted.socket_dir = directory / "run";
  const Attachment attachment(options);
  std::vector<Region> regions;
  for (std::uint32_t i = 0; i < 3; ++i) {
    for (const Region& region : row_major_regions(attachment.manifest()[i], i)) {
      regions.push_back(region);
    }
  }
  const std::vector<Hash128> hashes = hash_regions(attachment, regions, 3, 3);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(hashes[i], attachment.manifest()[i].hash) << i;
}

TEST(Pieces, PassOnWhatTheirUserThrows) {
  const test::TempDir directory;
  const test::LiveServer server(directory / "run", test::one_of_everything());
  AttachOptions options;
  options.connect.wanted.socket_dir = directory / "run";
  const Attachment attachment(options);
  const std::vector<Piece> pieces(100, Piece{0, 0, 64});
  EXPECT_THROW(read_pieces(attachment, pieces, 4,
                           [](std::size_t i, std::span<const std::byte>) {
                             if (i == 50) throw Error(Errc::kInternal, "piece 50");
                           }),
               Error);
}

}  // namespace
}  // namespace preload::client
