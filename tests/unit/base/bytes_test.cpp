// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"

#include <gtest/gtest.h>

namespace preload {
namespace {

TEST(Bytes, AlignUpRoundsToTheNextMultiple) {
  EXPECT_EQ(align_up(0, 512), 0U);
  EXPECT_EQ(align_up(1, 512), 512U);
  EXPECT_EQ(align_up(512, 512), 512U);
  EXPECT_EQ(align_up(513, 512), 1024U);
}

TEST(Bytes, CheckedMulRefusesWhatDoesNotFit) {
  EXPECT_EQ(checked_mul(1ULL << 32, 1ULL << 31), 1ULL << 63);
  EXPECT_EQ(checked_mul(1ULL << 32, 1ULL << 32), std::nullopt);
  EXPECT_EQ(checked_mul(0, ~0ULL), 0U);
}

TEST(Bytes, FormatsInBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(16 * kGiB), "16.00 GiB");
}

TEST(Bytes, ParsesNumbersWithAndWithoutUnits) {
  EXPECT_EQ(parse_bytes("4096"), 4096U);
  EXPECT_EQ(parse_bytes("7B"), 7U);
  EXPECT_EQ(parse_bytes("512M"), 512 * kMiB);
  EXPECT_EQ(parse_bytes("512MB"), 512 * kMiB);
  EXPECT_EQ(parse_bytes("8GiB"), 8 * kGiB);
}

TEST(Bytes, RefusesMalformedAndTooLargeSizes) {
  for (const char* text : {"", "M", "-1", "1.5G", "5X", "5Mi", "5 M", "5MBB",
                           "99999999999999999999", "99999999T", "0x10"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace preload
