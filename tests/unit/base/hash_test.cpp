// SPDX-License-Identifier: Apache-2.0
#include "base/hash.hpp"

#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/hash_words.hpp"
#include "support/safetensors_writer.hpp"

namespace preload {
namespace {

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// The rows of the table in docs/hash.md: an independent program wrote them.
struct Vector {
  std::string kind;
  std::uint64_t length = 0;
  std::uint64_t offset = 0;
  std::string hex;
};

std::vector<Vector> published_vectors() {
  std::ifstream in(PRELOAD_FIXTURES "/../../docs/hash.md");
  std::vector<Vector> vectors;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| ramp") && !line.starts_with("| ones")) continue;
    std::istringstream cells(line);
    std::string bar;
    Vector v;
    cells >> bar >> v.kind >> bar >> v.length >> bar >> v.offset >> bar >> v.hex;
    vectors.push_back(v);
  }
  return vectors;
}

std::string contents(const Vector& vector) {
  std::string bytes(vector.length, '\xff');
  if (vector.kind == "ramp") {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>((167 * i + 13) % 251);
    }
  }
  return bytes;
}

TEST(Hash, AgreesWithThePublishedTestVectors) {
  const std::vector<Vector> vectors = published_vectors();
  ASSERT_GE(vectors.size(), 16U);
  for (const Vector& vector : vectors) {
    EXPECT_EQ(to_hex(hash_bytes(as_bytes(contents(vector)), vector.offset)), vector.hex)
        << vector.kind << " " << vector.length << " at " << vector.offset;
  }
}

TEST(Hash, OfNothingIsZeroWhereverItLies) {
  EXPECT_EQ(hash_bytes({}), Hash128{});
  EXPECT_EQ(hash_bytes({}, 5), Hash128{});
}

TEST(Hash, AddsUpOverAnySplit) {
  const std::string data = test::pattern_bytes("split", 3000);
  const Hash128 whole = hash_bytes(as_bytes(data));
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    Hash128 sum;
    for (std::size_t at = 0; at < data.size();) {
      const std::size_t count = std::min<std::size_t>(1 + random() % 700, data.size() - at);
      sum += hash_bytes(as_bytes(data).subspan(at, count), at);
      at += count;
    }
    ASSERT_EQ(sum, whole) << "round " << round;
  }
}

TEST(Hash, DoesNotDependOnTheAddressOfTheBytes) {
  const std::string data = test::pattern_bytes("address", 1029);
  const Hash128 right = hash_bytes(as_bytes(data), 11);
  for (std::size_t shift = 0; shift < 64; ++shift) {
    const std::string moved = std::string(shift, 'x') + data;
    EXPECT_EQ(hash_bytes(as_bytes(moved).subspan(shift), 11), right) << "shift " << shift;
  }
}

TEST(Hash, OfRowsIsTheSumOfTheirRanges) {
  // A column slice of a 37 × 29-byte matrix, packed in memory with a stride of its own.
  constexpr std::uint64_t kRows = 37, kRowBytes = 29, kColumn = 5, kWidth = 13, kMemoryStride = 17;
  const std::string matrix = test::pattern_bytes("matrix", kRows * kRowBytes);
  std::string packed(kRows * kMemoryStride, '\x55');
  Hash128 right;
  for (std::uint64_t row = 0; row < kRows; ++row) {
    const std::uint64_t at = row * kRowBytes + kColumn;
    packed.replace(row * kMemoryStride, kWidth, matrix, at, kWidth);
    right += hash_bytes(as_bytes(matrix).subspan(at, kWidth), at);
  }
  EXPECT_EQ(hash_rows(as_bytes(packed).data(), kRows, kWidth, kMemoryStride, kColumn, kRowBytes),
            right);
}

TEST(Hash, OfColumnSlicesAddsUpToTheWhole) {
  constexpr std::uint64_t kRows = 61, kRowBytes = 48;
  const std::string matrix = test::pattern_bytes("columns", kRows * kRowBytes);
  const std::byte* data = as_bytes(matrix).data();
  Hash128 sum;
  for (const auto& [column, width] :
       {std::pair<std::uint64_t, std::uint64_t>{0, 6}, {6, 1}, {7, 25}, {32, 16}}) {
    sum += hash_rows(data + column, kRows, width, kRowBytes, column, kRowBytes);
  }
  EXPECT_EQ(sum, hash_bytes(as_bytes(matrix)));
}

TEST(Hash, OfATransposeIsTheWholeByItsElements) {
  constexpr std::uint64_t kRows = 19, kColumns = 23, kElement = 2;
  const std::string matrix = test::pattern_bytes("transpose", kRows * kColumns * kElement);
  std::string transposed(matrix.size(), '\0');
  for (std::uint64_t r = 0; r < kRows; ++r) {
    for (std::uint64_t c = 0; c < kColumns; ++c) {
      transposed.replace((c * kRows + r) * kElement, kElement, matrix,
                         (r * kColumns + c) * kElement, kElement);
    }
  }
  Hash128 sum;
  for (std::uint64_t c = 0; c < kColumns; ++c) {
    sum += hash_rows(as_bytes(transposed).data() + c * kRows * kElement, kRows, kElement, kElement,
                     c * kElement, kColumns * kElement);
  }
  EXPECT_EQ(sum, hash_bytes(as_bytes(matrix)));
}

TEST(Hash, TellsEveryFlippedBitAndEverySwap) {
  std::string data = test::pattern_bytes("flip", 96);
  const Hash128 right = hash_bytes(as_bytes(data));
  for (std::size_t bit = 0; bit < 8 * data.size(); ++bit) {
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(hash_bytes(as_bytes(data)), right) << "bit " << bit;
    data[bit / 8] = static_cast<char>(data[bit / 8] ^ (1 << (bit % 8)));
  }
  const std::string swapped = data.substr(8, 8) + data.substr(0, 8) + data.substr(16);
  EXPECT_NE(hash_bytes(as_bytes(swapped)), right);
}

TEST(Hash, OfVectorUnitsEqualsThePortableForm) {
  const std::string data = test::pattern_bytes("words", 8 * 1000 + 3);
  for (const std::size_t count : {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 999}) {
    for (const std::uint64_t index : {0ULL, 1ULL, 12345ULL, 1ULL << 40}) {
      const std::byte* start = as_bytes(data).data() + 3;
      EXPECT_EQ(hash_words(start, count, index), hash_words_scalar(start, count, index))
          << count << " words from " << index;
    }
  }
}

TEST(Hash, SurvivesMaximalWordsOverALongRun) {
  // Where lanes without carries would overflow if they were folded too late.
  const std::vector<std::uint64_t> words(std::size_t{1} << 21, ~0ULL);
  const auto bytes = std::as_bytes(std::span(words));
  EXPECT_EQ(hash_words(bytes.data(), words.size(), 0),
            hash_words_scalar(bytes.data(), words.size(), 0));
}

TEST(Hash, PrintsAndReadsBackAsHexadecimal) {
  const Hash128 hash{.lo = 0x0123456789abcdefULL, .hi = 0xfedcba9876543210ULL};
  EXPECT_EQ(to_hex(hash), "fedcba98765432100123456789abcdef");
  EXPECT_EQ(hash_from_hex("fedcba98765432100123456789abcdef"), hash);
  for (const char* wrong :
       {"", "fedcba98765432100123456789abcde", "fedcba98765432100123456789abcdefa",
        "gedcba98765432100123456789abcdef", "fedcba9876543210 123456789abcdef"}) {
    EXPECT_EQ(hash_from_hex(wrong), std::nullopt) << wrong;
  }
}

TEST(Hash, CarriesFromTheLowToTheHighHalf) {
  const Hash128 sum = Hash128{.lo = ~0ULL, .hi = 1} + Hash128{.lo = 1, .hi = 2};
  EXPECT_EQ(sum, (Hash128{.lo = 0, .hi = 4}));
}

TEST(Sha256, AgreesWithTheStandardsExamples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace preload
