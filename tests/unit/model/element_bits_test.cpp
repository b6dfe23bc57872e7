// SPDX-License-Identifier: Apache-2.0
#include "model/element_bits.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"

namespace preload::test {
namespace {

TEST(ElementBits, FloatsAreTheirIeeePatterns) {
  EXPECT_EQ(element_bits(1.0, DType::kF64), 0x3ff0000000000000U);
  EXPECT_EQ(element_bits(-2.5, DType::kF32), 0xc0200000U);
  EXPECT_EQ(element_bits(1.0, DType::kBF16), 0x3f80U);
  EXPECT_EQ(element_bits(-1.0, DType::kF16), 0xbc00U);
  EXPECT_EQ(element_bits(65504.0, DType::kF16), 0x7bffU);
  EXPECT_EQ(element_bits(65520.0, DType::kF16), 0x7c00U);  // rounds to infinity
  EXPECT_EQ(element_bits(5.9604644775390625e-8, DType::kF16), 0x0001U);
  EXPECT_EQ(element_bits(6.103515625e-5, DType::kF16), 0x0400U);  // the smallest normal
  EXPECT_EQ(element_bits(-0.0, DType::kBF16), 0x8000U);
  EXPECT_EQ(element_bits(std::numeric_limits<double>::infinity(), DType::kBF16), 0x7f80U);
  EXPECT_EQ(element_bits(1.0, DType::kF8E5M2), 0x3cU);
}

TEST(ElementBits, RoundToNearestEven) {
  EXPECT_EQ(element_bits(1.00390625, DType::kBF16), 0x3f80U);          // halfway, even below
  EXPECT_EQ(element_bits(1.01171875, DType::kBF16), 0x3f82U);          // halfway, even above
  EXPECT_EQ(element_bits(1.0039062500000002, DType::kBF16), 0x3f81U);  // just over halfway
  EXPECT_EQ(element_bits(1.998046875, DType::kBF16), 0x4000U);         // carries into the exponent
}

TEST(ElementBits, IntegersAreExactOrRefused) {
  EXPECT_EQ(element_bits(-1, DType::kI8), 0xffU);
  EXPECT_EQ(element_bits(-1, DType::kI64), ~0ULL);
  EXPECT_EQ(element_bits(255, DType::kU8), 0xffU);
  EXPECT_EQ(element_bits(1, DType::kBool), 1U);
  EXPECT_THROW(element_bits(256, DType::kU8), Error);
  EXPECT_THROW(element_bits(0.5, DType::kI32), Error);
  EXPECT_THROW(element_bits(2, DType::kBool), Error);
  EXPECT_THROW(element_bits(9.3e18, DType::kI64), Error);
}

TEST(ElementBits, OtherTypesKnowZeroAlone) {
  EXPECT_EQ(element_bits(0, DType::kF8E4M3), 0U);
  EXPECT_THROW(element_bits(1, DType::kF8E4M3), Error);
  EXPECT_THROW(element_bits(0, DType::kF8E8M0), Error);  // it has no zero
}

}  // namespace
}  // namespace preload::test
