// SPDX-License-Identifier: Apache-2.0
#include "model/element_bits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace preload {
namespace {

// IEEE-like: a sign, `exponent_bits`, `mantissa_bits`, subnormals and infinities. The value is
// rounded once, from double, to nearest even.
std::uint64_t small_float(double value, int exponent_bits, int mantissa_bits) {
  const std::uint64_t sign = (std::signbit(value) ? 1ULL : 0ULL) << (exponent_bits + mantissa_bits);
  const std::uint64_t infinity = ((1ULL << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(value)) return sign | infinity | (1ULL << (mantissa_bits - 1));
  const double magnitude = std::fabs(value);
  if (std::isinf(value)) return sign | infinity;
  if (magnitude == 0) return sign;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [0.5, 1)
  const int unit = std::max(exponent - 1, 1 - bias) - mantissa_bits;  // exponent of the last place
  // nearbyint rounds to nearest even in the default mode. Counted in units of the last place the
  // pattern is linear, also across the step from subnormals and from one exponent to the next.
  const auto units = static_cast<std::uint64_t>(std::nearbyint(std::ldexp(magnitude, -unit)));
  const auto steps = static_cast<std::uint64_t>(unit + mantissa_bits + bias - 1);
  return sign | std::min(units + (steps << mantissa_bits), infinity);
}

template <class Integer>
std::uint64_t integer_bits(double value, DType dtype) {
  const auto low = static_cast<double>(std::numeric_limits<Integer>::min());
  // The type's largest value plus one is a power of two, which a double holds exactly.
  const double beyond = std::ldexp(1.0, std::numeric_limits<Integer>::digits);
  if (!(value >= low && value < beyond) || value != std::floor(value)) {
    throw Error(Errc::kInternal, fmt::format("{} is no value of {}", value, dtype_name(dtype)));
  }
  const std::uint64_t mask = ~0ULL >> (64 - 8 * sizeof(Integer));
  return static_cast<std::uint64_t>(static_cast<Integer>(value)) & mask;
}

}  // namespace

std::uint64_t element_bits(double value, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::bit_cast<std::uint64_t>(value);
    case DType::kF32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::kBF16:
      return small_float(value, 8, 7);
    case DType::kF16:
      return small_float(value, 5, 10);
    case DType::kF8E5M2:
      return small_float(value, 5, 2);
    case DType::kI8:
      return integer_bits<std::int8_t>(value, dtype);
    case DType::kU8:
      return integer_bits<std::uint8_t>(value, dtype);
    case DType::kI16:
      return integer_bits<std::int16_t>(value, dtype);
    case DType::kU16:
      return integer_bits<std::uint16_t>(value, dtype);
    case DType::kI32:
      return integer_bits<std::int32_t>(value, dtype);
    case DType::kU32:
      return integer_bits<std::uint32_t>(value, dtype);
    case DType::kI64:
      return integer_bits<std::int64_t>(value, dtype);
    case DType::kU64:
      return integer_bits<std::uint64_t>(value, dtype);
    case DType::kBool:
      if (value == 0 || value == 1) return value == 0 ? 0 : 1;
      break;
    default:
      // Zero is all bits clear in every type that has a zero.
      if (value == 0 && !std::signbit(value) && dtype != DType::kF8E8M0) return 0;
  }
  throw Error(Errc::kInternal,
              fmt::format("no bit pattern of {} is known for {}", value, dtype_name(dtype)));
}

}  // namespace preload
