// SPDX-License-Identifier: Apache-2.0
#include "load/float_convert.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "load/convert_rows.hpp"

namespace preload {
namespace {

// The value of a 16-bit pattern from the formats' definition, in double, which holds them exactly.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::nan("") : sign * INFINITY;
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + fraction, exponent - bias - mantissa_bits);
}
double bf16_value(std::uint16_t bits) { return value_of(bits, 8, 7); }
double f16_value(std::uint16_t bits) { return value_of(bits, 5, 10); }

// Nearest of the format's values by search, ties to the even pattern: rounding from first
// principles. Patterns of positive values are in the values' order.
template <class Value>
std::uint16_t nearest(double value, std::uint16_t infinity, Value of) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  std::uint16_t low = 0;
  std::uint16_t high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (of(middle) <= magnitude ? low : high) = middle;
  }
  if (of(high) <= magnitude) return sign | high;
  // For rounding the value after the largest stands where the exponent would go on.
  const double below = of(low);
  const double step = low == 0 ? of(1) : below - of(static_cast<std::uint16_t>(low - 1));
  const double above = high == infinity ? below + step : of(high);
  const double middle = below + (above - below) / 2;
  const bool up = magnitude > middle || (magnitude == middle && (low & 1) != 0);
  return sign | (up ? high : low);
}
std::uint16_t nearest_bf16(double value) { return nearest(value, 0x7f80, bf16_value); }
std::uint16_t nearest_f16(double value) { return nearest(value, 0x7c00, f16_value); }

bool is_nan_f16(std::uint16_t bits) { return std::isnan(f16_value(bits)); }
bool is_nan_bf16(std::uint16_t bits) { return std::isnan(bf16_value(bits)); }

std::uint32_t f32_bits(double value) {
  return std::bit_cast<std::uint32_t>(static_cast<float>(value));
}
std::uint64_t f64_bits(double value) { return std::bit_cast<std::uint64_t>(value); }

TEST(FloatConvert, WidensEvery16BitPatternExactly) {
  for (unsigned i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const auto wide16 = convert_float<F16Format, F32Format>(bits);
    const auto wide_b16 = convert_float<BF16Format, F32Format>(bits);
    const auto double16 = convert_float<F16Format, F64Format>(bits);
    const auto double_b16 = convert_float<BF16Format, F64Format>(bits);
    if (is_nan_f16(bits)) {
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(wide16)));
      EXPECT_TRUE(std::isnan(std::bit_cast<double>(double16)));
    } else {
      ASSERT_EQ(wide16, f32_bits(f16_value(bits))) << i;
      ASSERT_EQ(double16, f64_bits(f16_value(bits))) << i;
    }
    if (is_nan_bf16(bits)) {
      EXPECT_TRUE(std::isnan(std::bit_cast<float>(wide_b16)));
      EXPECT_TRUE(std::isnan(std::bit_cast<double>(double_b16)));
    } else {
      ASSERT_EQ(wide_b16, f32_bits(bf16_value(bits))) << i;
      ASSERT_EQ(double_b16, f64_bits(bf16_value(bits))) << i;
    }
  }
}

TEST(FloatConvert, TurnsEvery16BitPatternIntoTheOther16BitFormat) {
  for (unsigned i = 0; i <= 0xffff; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const auto to_bf16 = convert_float<F16Format, BF16Format>(bits);
    const auto to_f16 = convert_float<BF16Format, F16Format>(bits);
    if (is_nan_f16(bits)) {
      EXPECT_TRUE(is_nan_bf16(to_bf16));
    } else {
      ASSERT_EQ(to_bf16, nearest_bf16(f16_value(bits))) << i;
    }
    if (is_nan_bf16(bits)) {
      EXPECT_TRUE(is_nan_f16(to_f16));
    } else {
      ASSERT_EQ(to_f16, nearest_f16(bf16_value(bits))) << i;
    }
  }
}

// Every value of the format, the middle between it and the next, and the neighbours of the middle.
template <class Value>
std::vector<double> hard_cases(std::uint16_t infinity, Value of) {
  std::vector<double> cases;
  for (std::uint16_t bits = 0; bits < infinity; ++bits) {
    const double value = of(bits);
    const double step = bits == 0 ? of(1) : value - of(static_cast<std::uint16_t>(bits - 1));
    const double next =
        bits + 1 == infinity ? value + step : of(static_cast<std::uint16_t>(bits + 1));
    const double middle = value + (next - value) / 2;
    for (const double x :
         {value, middle, std::nextafter(middle, 0.0), std::nextafter(middle, next)}) {
      cases.push_back(x);
      cases.push_back(-x);
    }
  }
  return cases;
}

TEST(FloatConvert, RoundsDoublesToNearestEvenInOneStep) {
  for (const double x : hard_cases(0x7f80, bf16_value)) {
    ASSERT_EQ((convert_float<F64Format, BF16Format>(f64_bits(x))), nearest_bf16(x)) << x;
  }
  for (const double x : hard_cases(0x7c00, f16_value)) {
    ASSERT_EQ((convert_float<F64Format, F16Format>(f64_bits(x))), nearest_f16(x)) << x;
  }
}

TEST(FloatConvert, RoundsFloatsToNearestEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    const auto bits = static_cast<std::uint32_t>(random());
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ((convert_float<F32Format, BF16Format>(bits)), nearest_bf16(value)) << value;
    ASSERT_EQ((convert_float<F32Format, F16Format>(bits)), nearest_f16(value)) << value;
    ASSERT_EQ((convert_float<F32Format, F64Format>(bits)), f64_bits(value)) << value;
  }
}

TEST(FloatConvert, AgreesWithTheProcessorOnDoublesToFloats) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 300000; ++i) {
    // Exponents around the float range, so that most are no plain overflow.
    const double value =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 320) - 230);
    ASSERT_EQ((convert_float<F64Format, F32Format>(f64_bits(value))), f32_bits(value)) << value;
    ASSERT_EQ((convert_float<F64Format, F32Format>(f64_bits(-value))), f32_bits(-value)) << value;
  }
}

TEST(FloatConvert, KeepsNaNsWhoseTopBitsAreZero) {
  EXPECT_TRUE(is_nan_bf16(convert_float<F32Format, BF16Format>(0x7f800001)));
  EXPECT_TRUE(is_nan_f16(convert_float<F32Format, F16Format>(0xff800001)));
  EXPECT_EQ((convert_float<F32Format, F16Format>(0xff800001)) & 0x8000, 0x8000);
  EXPECT_TRUE(is_nan_bf16(convert_float<F64Format, BF16Format>(0x7ff0000000000001)));
}

TEST(ConvertRows, TakesAnyPitchAndAlignment) {
  // 3 rows of 2 floats, 9 bytes apart from an odd address, to rows 5 bytes apart.
  std::string source(1 + 2 * 9 + 8, '\x55');
  const float values[3][2] = {{1.0F, -2.0F}, {0.5F, 3.0F}, {1.00390625F, -0.0F}};
  for (int row = 0; row < 3; ++row) std::memcpy(source.data() + 1 + row * 9, values[row], 8);
  std::string target(1 + 2 * 5 + 4, '\x77');
  convert_rows({reinterpret_cast<const std::byte*>(source.data()) + 1, 9,
                reinterpret_cast<std::byte*>(target.data()) + 1, 5, 3, 2},
               DType::kF32, DType::kBF16);
  const std::string expected = {'\x77', '\x80', '\x3f', '\x00', '\xc0', '\x77', '\x00', '\x3f',
                                '\x40', '\x40', '\x77', '\x80', '\x3f', '\x00', '\x80'};
  EXPECT_EQ(target, expected);  // 1.00390625 lies in the middle: to the even 1.0
}

TEST(ConvertRows, RefusesTypesThatAreNoWideFloats) {
  EXPECT_THROW(convert_rows({}, DType::kU8, DType::kF32), Error);
  EXPECT_THROW(convert_rows({}, DType::kF32, DType::kF8E4M3), Error);
}

}  // namespace
}  // namespace preload
