// SPDX-License-Identifier: Apache-2.0
#include "base/hash_words.hpp"

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
// GCC 12's own header leaves its "undefined" vectors uninitialized on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace preload {

Hash128 hash_words_scalar(const std::byte* data, std::size_t count, std::uint64_t index) noexcept {
  // Two accumulators: the carry chain of one would bound the loop.
  unsigned __int128 sum[2] = {0, 0};
  std::uint64_t high = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t word;
    std::memcpy(&word, data + 8 * i, 8);
    const std::uint64_t at = 2 * (index + i);
    high += word * splitmix64(at);
    sum[i % 2] += static_cast<unsigned __int128>(word) * (splitmix64(at + 1) | 1);
  }
  const unsigned __int128 total = sum[0] + sum[1];
  return {static_cast<std::uint64_t>(total), static_cast<std::uint64_t>(total >> 64) + high};
}

#if defined(__x86_64__)
namespace {

#define PRELOAD_AVX512 __attribute__((target("avx512f,avx512dq"), always_inline)) inline

PRELOAD_AVX512 __m512i splitmix(__m512i x) {
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 30)),
                         _mm512_set1_epi64(static_cast<long long>(0xbf58476d1ce4e5b9ULL)));
  x = _mm512_mullo_epi64(_mm512_xor_si512(x, _mm512_srli_epi64(x, 27)),
                         _mm512_set1_epi64(static_cast<long long>(0x94d049bb133111ebULL)));
  return _mm512_xor_si512(x, _mm512_srli_epi64(x, 31));
}

// x >> 32 on the shuffle port: the multiplies and shifts fill the other one.
PRELOAD_AVX512 __m512i upper_half(__m512i x) {
  return _mm512_maskz_shuffle_epi32(0x5555, x, _MM_PERM_DDBB);
}

// Eight lanes of (word * r) summed without carries: the four 32x32 partial products of word * low
// go to separate accumulators whose 64-bit lanes are folded every kFold steps.
struct Lanes {
  __m512i low;     // sum of the products' low halves (bits 0..31 of each partial kept apart)
  __m512i middle;  // weight 2^32
  __m512i high;    // weight 2^64
};

// Each step adds < 2^32 per lane to `low` and < 3 * 2^32 to `middle`: 2^29 steps would still fit.
constexpr std::size_t kFold = std::size_t{1} << 24;

__attribute__((target("avx512f,avx512dq"))) Hash128 fold(const Lanes& lanes) noexcept {
  alignas(64) std::uint64_t low[8], middle[8], high[8];
  _mm512_store_si512(low, lanes.low);
  _mm512_store_si512(middle, lanes.middle);
  _mm512_store_si512(high, lanes.high);
  unsigned __int128 sum = 0;
  for (int i = 0; i < 8; ++i) {
    sum += low[i];
    sum += static_cast<unsigned __int128>(middle[i]) << 32;
    sum += static_cast<unsigned __int128>(high[i]) << 64;
  }
  return {static_cast<std::uint64_t>(sum), static_cast<std::uint64_t>(sum >> 64)};
}

__attribute__((target("avx512f,avx512dq"))) Hash128 hash_words_avx512(
    const std::byte* data, std::size_t count, std::uint64_t index) noexcept {
  const __m512i mask32 = _mm512_set1_epi64(0xffffffffLL);
  const __m512i one = _mm512_set1_epi64(1);
  const __m512i gamma = _mm512_set1_epi64(static_cast<long long>(0x9e3779b97f4a7c15ULL));
  const __m512i step = _mm512_set1_epi64(16);
  // 2 * word index + splitmix64's increment; the odd stream is one further.
  __m512i at =
      _mm512_add_epi64(_mm512_add_epi64(_mm512_set1_epi64(static_cast<long long>(2 * index)),
                                        _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0)),
                       gamma);
  Hash128 total;
  std::size_t i = 0;
  while (count - i >= 8) {
    const std::size_t end = i + std::min((count - i) / 8, kFold) * 8;
    Lanes lanes{_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (; i < end; i += 8) {
      const __m512i word = _mm512_loadu_si512(data + 8 * i);
      const __m512i r_high = splitmix(at);
      const __m512i r_low = _mm512_or_si512(splitmix(_mm512_add_epi64(at, one)), one);
      at = _mm512_add_epi64(at, step);
      const __m512i word_upper = upper_half(word);
      const __m512i r_upper = upper_half(r_low);
      const __m512i ll = _mm512_mul_epu32(word, r_low);
      const __m512i lu = _mm512_mul_epu32(word, r_upper);
      const __m512i ul = _mm512_mul_epu32(word_upper, r_low);
      const __m512i uu = _mm512_mul_epu32(word_upper, r_upper);
      lanes.low = _mm512_add_epi64(lanes.low, _mm512_and_si512(ll, mask32));
      lanes.middle = _mm512_add_epi64(
          lanes.middle,
          _mm512_add_epi64(upper_half(ll), _mm512_add_epi64(_mm512_and_si512(lu, mask32),
                                                            _mm512_and_si512(ul, mask32))));
      lanes.high = _mm512_add_epi64(
          lanes.high, _mm512_add_epi64(_mm512_add_epi64(upper_half(lu), upper_half(ul)),
                                       _mm512_add_epi64(uu, _mm512_mullo_epi64(word, r_high))));
    }
    total += fold(lanes);
  }
  return total += hash_words_scalar(data + 8 * i, count - i, index + i);
}

bool have_avx512() noexcept {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq");
}

}  // namespace

Hash128 hash_words(const std::byte* data, std::size_t count, std::uint64_t index) noexcept {
  static const bool avx512 = have_avx512();
  return avx512 && count >= 16 ? hash_words_avx512(data, count, index)
                               : hash_words_scalar(data, count, index);
}
#else
Hash128 hash_words(const std::byte* data, std::size_t count, std::uint64_t index) noexcept {
  return hash_words_scalar(data, count, index);
}
#endif

}  // namespace preload
