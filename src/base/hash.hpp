// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace preload {

// The linear content hash: H = sum of word_i * r(i) mod 2^128 over the 8-byte little-endian words
// of a tensor (tail padded with zeros), r(i) = (splitmix64(2i) << 64 | splitmix64(2i+1)) | 1.
// Any byte range contributes alone and contributions add up. Not cryptographic.
struct Hash128 {
  std::uint64_t lo = 0;
  std::uint64_t hi = 0;

  Hash128& operator+=(const Hash128& other) noexcept {
    lo += other.lo;
    hi += other.hi + (lo < other.lo ? 1U : 0U);
    return *this;
  }
  friend Hash128 operator+(Hash128 a, const Hash128& b) noexcept { return a += b; }
  friend bool operator==(const Hash128&, const Hash128&) = default;
};

// Contribution of `bytes` that lie at byte `offset_bytes` of their tensor; any alignment.
Hash128 hash_bytes(std::span<const std::byte> bytes, std::uint64_t offset_bytes = 0) noexcept;

// Contribution of `rows` rows of `row_bytes`, `memory_stride` apart in memory and `index_stride`
// apart in the tensor, the first at byte `offset_bytes` of the tensor.
Hash128 hash_rows(const std::byte* data, std::uint64_t rows, std::uint64_t row_bytes,
                  std::uint64_t memory_stride, std::uint64_t offset_bytes,
                  std::uint64_t index_stride) noexcept;

std::string to_hex(const Hash128& hash);  // 32 digits, most significant first
std::optional<Hash128> hash_from_hex(std::string_view hex);

std::string sha256_hex(std::string_view bytes);  // 64 digits

}  // namespace preload
