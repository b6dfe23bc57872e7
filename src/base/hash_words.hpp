// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/hash.hpp"

namespace preload {

constexpr std::uint64_t splitmix64(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// word * r(index) mod 2^128.
inline Hash128 hash_word(std::uint64_t word, std::uint64_t index) noexcept {
  const std::uint64_t high = splitmix64(2 * index);
  const std::uint64_t low = splitmix64(2 * index + 1) | 1;
  const unsigned __int128 product = static_cast<unsigned __int128>(word) * low;
  return {static_cast<std::uint64_t>(product),
          static_cast<std::uint64_t>(product >> 64) + word * high};
}

// Sum over `count` whole words at `data` (any alignment), the first being word `index`. Uses
// AVX-512 where the CPU has it.
Hash128 hash_words(const std::byte* data, std::size_t count, std::uint64_t index) noexcept;

// The portable form, for comparison in tests and benches.
Hash128 hash_words_scalar(const std::byte* data, std::size_t count, std::uint64_t index) noexcept;

}  // namespace preload
