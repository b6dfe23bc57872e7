// SPDX-License-Identifier: Apache-2.0
#include "plan/source_hashes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>

#include "base/error.hpp"
#include "plan/region_tiling.hpp"
#include "support/safetensors_writer.hpp"

namespace preload {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A checkpoint of one tensor of rows × row bytes with known contents.
struct Matrix {
  Matrix(std::uint64_t rows, std::uint64_t row_bytes)
      : bytes(test::pattern_bytes("m", rows * row_bytes)), stride(row_bytes) {
    checkpoint.files.push_back({.name = "model.safetensors"});
    checkpoint.tensors.push_back(
        {.name = "m.weight", .dtype = DType::kU8, .shape = {}, .bytes = bytes.size()});
  }
  // Columns [column, column + width) of rows [row, row + rows), hashed as a rank would.
  SourceRegion block(std::uint64_t row, std::uint64_t rows, std::uint64_t column,
                     std::uint64_t width) const {
    SourceRegion region{.source = 0,
                        .offset = row * stride + column,
                        .rows = rows,
                        .row_bytes = width,
                        .stride = stride,
                        .hash = {}};
    for (std::uint64_t r = 0; r < rows; ++r) {
      const std::uint64_t at = region.offset + r * stride;
      region.hash += hash_bytes(std::as_bytes(std::span(bytes)).subspan(at, width), at);
    }
    return region;
  }
  SourceRegion range(std::uint64_t offset, std::uint64_t count) const {
    return {.source = 0,
            .offset = offset,
            .rows = 1,
            .row_bytes = count,
            .stride = 0,
            .hash = hash_bytes(std::as_bytes(std::span(bytes)).subspan(offset, count), offset)};
  }
  Hash128 whole() const { return hash_bytes(std::as_bytes(std::span(bytes))); }

  std::string bytes;
  std::uint64_t stride;
  Checkpoint checkpoint;
};

void expect_whole(const Matrix& m, std::vector<SourceRegion> regions) {
  const CombinedHashes combined = combine_regions(m.checkpoint, std::move(regions));
  EXPECT_THAT(combined.rehash, IsEmpty());
  ASSERT_EQ(combined.hashes.size(), 1U);
  EXPECT_EQ(combined.hashes[0].source, 0U);
  EXPECT_EQ(combined.hashes[0].hash, m.whole());
}

void expect_rehash(const Matrix& m, std::vector<SourceRegion> regions) {
  const CombinedHashes combined = combine_regions(m.checkpoint, std::move(regions));
  EXPECT_THAT(combined.rehash, ElementsAre(0U));
  EXPECT_THAT(combined.hashes, IsEmpty());
}

TEST(SourceHashes, RowShardsAddUpToTheTensor) {
  const Matrix m(16, 24);
  expect_whole(m, {m.block(8, 8, 0, 24), m.block(0, 4, 0, 24), m.block(4, 4, 0, 24)});
}

TEST(SourceHashes, ColumnShardsAddUpToTheTensor) {
  const Matrix m(64, 30);
  expect_whole(m, {m.block(0, 64, 20, 10), m.block(0, 64, 0, 7), m.block(0, 64, 7, 13)});
}

TEST(SourceHashes, BlocksOfRowsAndColumnsAddUpToTheTensor) {
  const Matrix m(12, 20);
  expect_whole(
      m, {m.block(0, 6, 0, 10), m.block(0, 6, 10, 10), m.block(6, 6, 0, 5), m.block(6, 6, 5, 15)});
}

TEST(SourceHashes, BlocksBesideWholeRowsAddUpToTheTensor) {
  const Matrix m(12, 20);
  expect_whole(m, {m.block(0, 5, 0, 20), m.block(5, 1, 0, 12), m.block(5, 1, 12, 8),
                   m.block(6, 6, 8, 12), m.block(6, 6, 0, 8)});
}

TEST(SourceHashes, ReplicasCountOnce) {
  const Matrix m(16, 24);
  expect_whole(m, {m.block(0, 8, 0, 24), m.block(8, 8, 0, 24), m.block(0, 8, 0, 24),
                   m.block(8, 8, 0, 24), m.block(8, 8, 0, 24)});
}

TEST(SourceHashes, TheSameBytesInAnotherDescriptionAreAReplica) {
  const Matrix m(16, 24);
  // Eight touching rows and one long row.
  expect_whole(m, {m.block(0, 8, 0, 24), m.range(0, 8 * 24), m.block(8, 8, 0, 24)});
}

TEST(SourceHashes, OneWhoReadItAllSufficesBesideShardsOfOthers) {
  const Matrix m(16, 24);
  expect_whole(m, {m.block(0, 8, 0, 24), m.range(0, 16 * 24), m.block(3, 4, 0, 24)});
}

TEST(SourceHashes, ReplicasThatDisagreeAreADeviceErrorNamingTheTensor) {
  const Matrix m(16, 24);
  SourceRegion wrong = m.block(8, 8, 0, 24);
  wrong.hash.lo ^= 1;
  try {
    (void)combine_regions(m.checkpoint, {m.block(0, 8, 0, 24), m.block(8, 8, 0, 24), wrong});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kDevice);
    EXPECT_THAT(error.what(), HasSubstr("m.weight"));
    EXPECT_THAT(error.what(), HasSubstr("model.safetensors"));
    EXPECT_THAT(error.what(), HasSubstr("load again"));
  }
}

TEST(SourceHashes, GapsOverlapsAndHalvesAreHashedFromTheFile) {
  const Matrix m(16, 24);
  expect_rehash(m, {m.block(0, 8, 0, 24)});                        // half
  expect_rehash(m, {m.block(0, 8, 0, 24), m.block(9, 7, 0, 24)});  // a gap
  expect_rehash(m, {m.block(0, 9, 0, 24), m.block(8, 8, 0, 24)});  // an overlap
  expect_rehash(m, {m.block(0, 16, 0, 12), m.block(0, 16, 11, 12), m.block(0, 16, 23, 1)});
  // As many bytes as the tensor has, one range of them twice and another never.
  expect_rehash(m, {m.block(0, 8, 0, 24), m.block(4, 8, 0, 24)});
  expect_rehash(m, {m.block(0, 16, 0, 12), m.block(0, 16, 6, 12)});
}

TEST(SourceHashes, TensorsThatNobodyReadAndRegionsWithoutBytesLeaveNoTrace) {
  Matrix m(4, 4);
  m.checkpoint.tensors.push_back({.name = "empty", .dtype = DType::kU8, .shape = {0}});
  const CombinedHashes combined = combine_regions(
      m.checkpoint,
      {{.source = 1, .rows = 1}, {.source = 0, .offset = 3, .rows = 0, .row_bytes = 4}});
  EXPECT_THAT(combined.hashes, IsEmpty());
  EXPECT_THAT(combined.rehash, IsEmpty());
}

TEST(SourceHashes, RegionsOutsideOfTheirTensorAreABug) {
  const Matrix m(4, 4);
  const SourceRegion outside[] = {
      {.source = 0, .offset = 13, .row_bytes = 4},
      {.source = 0, .rows = 5, .row_bytes = 4, .stride = 4},
      {.source = 0, .rows = 2, .row_bytes = 1, .stride = ~0ULL},
      {.source = 0, .rows = 1ULL << 63, .row_bytes = 2},
      {.source = 0, .offset = ~0ULL, .row_bytes = 1},
      {.source = 7, .row_bytes = 1},
  };
  for (const SourceRegion& region : outside) {
    EXPECT_THROW((void)combine_regions(m.checkpoint, {region}), Error);
  }
}

// Decides tiling by marking bytes.
bool tiles_by_marking(const std::vector<SourceRegion>& regions, std::uint64_t bytes) {
  std::vector<int> marks(bytes, 0);
  for (const SourceRegion& region : regions) {
    for (std::uint64_t r = 0; r < region.rows; ++r) {
      for (std::uint64_t i = 0; i < region.row_bytes; ++i) {
        ++marks[region.offset + r * region.stride + i];
      }
    }
  }
  return std::all_of(marks.begin(), marks.end(), [](int mark) { return mark == 1; });
}

TEST(Tiling, AgreesWithMarkingEveryByte) {
  std::mt19937_64 random(5);
  int tiled = 0;
  for (int round = 0; round < 20000; ++round) {
    // Cut a matrix at random, then perhaps move or resize one piece.
    const std::uint64_t rows = 1 + random() % 6, stride = 2 + random() % 8;
    std::vector<SourceRegion> regions;
    const std::uint64_t cut_row = random() % (rows + 1);
    const auto add_rows = [&](std::uint64_t row, std::uint64_t count) {
      if (count == 0) return;
      const std::uint64_t column = random() % stride;
      if (column == 0) {
        regions.push_back({.offset = row * stride, .rows = 1, .row_bytes = count * stride});
        return;
      }
      regions.push_back(
          {.offset = row * stride, .rows = count, .row_bytes = column, .stride = stride});
      regions.push_back({.offset = row * stride + column,
                         .rows = count,
                         .row_bytes = stride - column,
                         .stride = stride});
    };
    add_rows(0, cut_row);
    add_rows(cut_row, rows - cut_row);
    if (random() % 2 == 0) {
      SourceRegion& region = regions[random() % regions.size()];
      const std::uint64_t end =
          region.offset + (region.rows - 1) * region.stride + region.row_bytes;
      if (end < rows * stride) {
        ++region.offset;
      } else if (region.offset > 0) {
        --region.offset;
      }
    }
    std::shuffle(regions.begin(), regions.end(), random);
    const bool right = tiles_by_marking(regions, rows * stride);
    tiled += right ? 1 : 0;
    ASSERT_EQ(tiles(regions, rows * stride), right) << "round " << round;
  }
  EXPECT_GT(tiled, 5000);
  EXPECT_LT(tiled, 19000);
}

TEST(Tiling, RowsOfDifferentStridesAreDecidedOneByOne) {
  // Even bytes by a stride of 2, odd ones by two strides of 4.
  const std::vector<SourceRegion> regions{
      {.offset = 0, .rows = 8, .row_bytes = 1, .stride = 2},
      {.offset = 1, .rows = 4, .row_bytes = 1, .stride = 4},
      {.offset = 3, .rows = 4, .row_bytes = 1, .stride = 4},
  };
  EXPECT_TRUE(tiles(regions, 16));
  auto shifted = regions;
  shifted[2].offset = 2;  // twice byte 2, never byte 3
  EXPECT_FALSE(tiles(shifted, 16));
}

TEST(Tiling, GivesUpOnTooManyUnrelatedRowsRatherThanTakingForEver) {
  const std::uint64_t rows = 1ULL << 40;
  const std::vector<SourceRegion> regions{
      {.offset = 0, .rows = 2 * rows, .row_bytes = 1, .stride = 2},
      {.offset = 1, .rows = rows, .row_bytes = 1, .stride = 4},
      {.offset = 3, .rows = rows, .row_bytes = 1, .stride = 4},
  };
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(tiles(regions, 4 * rows));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(Tiling, OfManyColumnShardsDoesNotDependOnTheRows) {
  constexpr std::uint64_t kRanks = 64, kWidth = 512, kRows = 1ULL << 36;
  std::vector<SourceRegion> regions;
  for (std::uint64_t r = 0; r < kRanks; ++r) {
    regions.push_back(
        {.offset = r * kWidth, .rows = kRows, .row_bytes = kWidth, .stride = kRanks * kWidth});
  }
  EXPECT_TRUE(tiles(regions, kRows * kRanks * kWidth));
  regions.back().row_bytes -= 1;
  EXPECT_FALSE(tiles(regions, kRows * kRanks * kWidth));
}

TEST(Regions, ComeBackFromTheirEncoding) {
  const std::vector<SourceRegion> regions{
      {.source = 4'000'000'000,
       .offset = 1ULL << 50,
       .rows = 3,
       .row_bytes = 5,
       .stride = 7,
       .hash = {.lo = ~0ULL, .hi = 1}},
      {},
  };
  EXPECT_EQ(decode_regions(encode_regions(regions)), regions);
  EXPECT_THAT(decode_regions(""), IsEmpty());
  EXPECT_THROW((void)decode_regions(encode_regions(regions).substr(1)), Error);
}

}  // namespace
}  // namespace preload
