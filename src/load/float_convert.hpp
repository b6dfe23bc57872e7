// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PRELOAD_HOST_DEVICE __host__ __device__
#else
#define PRELOAD_HOST_DEVICE
#endif

// Value conversion between IEEE-like formats in integer arithmetic: one implementation, the same
// bits on host and GPU. C++17, so that nvcc takes it under any standard.
namespace preload {

template <class BitsType, int kExponent, int kMantissa>
struct FloatFormat {
  using Bits = BitsType;
  static constexpr int kExponentBits = kExponent;
  static constexpr int kMantissaBits = kMantissa;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr int kMaxExponent = (1 << kExponent) - 1;  // of infinities and NaNs
};
using F16Format = FloatFormat<std::uint16_t, 5, 10>;
using BF16Format = FloatFormat<std::uint16_t, 8, 7>;
using F32Format = FloatFormat<std::uint32_t, 8, 23>;
using F64Format = FloatFormat<std::uint64_t, 11, 52>;

namespace detail {

PRELOAD_HOST_DEVICE inline int leading_zeros(std::uint64_t value) {  // value != 0
#ifdef __CUDA_ARCH__
  return __clzll(static_cast<long long>(value));
#else
  return __builtin_clzll(value);
#endif
}

// value / 2^shift, rounded to nearest, ties to even; shift is at least 1.
PRELOAD_HOST_DEVICE inline std::uint64_t shift_right_even(std::uint64_t value, int shift) {
  if (shift > 64) return 0;  // below half of the last place
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  const std::uint64_t kept = shift == 64 ? 0 : value >> shift;
  const std::uint64_t rest = shift == 64 ? value : value & ((half << 1) - 1);
  return kept + (rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0);
}

}  // namespace detail

// Rounds to nearest even; too large becomes infinity; a NaN stays a (quiet) NaN of the same sign.
template <class From, class To>
PRELOAD_HOST_DEVICE inline typename To::Bits convert_float(typename From::Bits bits) {
  constexpr std::uint64_t kOne = 1;
  constexpr std::uint64_t kInfinity = static_cast<std::uint64_t>(To::kMaxExponent)
                                      << To::kMantissaBits;
  const std::uint64_t sign =
      static_cast<std::uint64_t>(bits) >> (From::kExponentBits + From::kMantissaBits);
  const std::uint64_t to_sign = sign << (To::kExponentBits + To::kMantissaBits);
  const std::uint64_t fraction = bits & ((kOne << From::kMantissaBits) - 1);
  const int exponent = static_cast<int>((bits >> From::kMantissaBits) &
                                        static_cast<std::uint64_t>(From::kMaxExponent));

  std::uint64_t magnitude = 0;
  if (exponent == From::kMaxExponent) {
    magnitude = kInfinity;
    if (fraction != 0) {
      const std::uint64_t top = fraction << (63 - From::kMantissaBits) >> (63 - To::kMantissaBits);
      magnitude |= top | (kOne << (To::kMantissaBits - 1));
    }
  } else if (exponent != 0 || fraction != 0) {
    // The value is significand * 2^(scale - 63) with the significand's top bit set.
    std::uint64_t significand = 0;
    int scale = 0;
    if (exponent != 0) {
      significand = ((kOne << From::kMantissaBits) | fraction) << (63 - From::kMantissaBits);
      scale = exponent - From::kBias;
    } else {
      const int zeros = detail::leading_zeros(fraction);
      significand = fraction << zeros;
      scale = 63 - zeros + 1 - From::kBias - From::kMantissaBits;
    }
    const int biased = scale + To::kBias;
    if (biased >= To::kMaxExponent) {
      magnitude = kInfinity;
    } else if (biased >= 1) {
      // The leading one adds one to the exponent field; a carry of the rounding does too.
      magnitude = (static_cast<std::uint64_t>(biased - 1) << To::kMantissaBits) +
                  detail::shift_right_even(significand, 63 - To::kMantissaBits);
    } else {
      magnitude = detail::shift_right_even(significand, 64 - To::kMantissaBits - biased);
    }
  }
  return static_cast<typename To::Bits>(to_sign | magnitude);
}

}  // namespace preload
