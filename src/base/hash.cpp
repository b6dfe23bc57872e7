// SPDX-License-Identifier: Apache-2.0
#include "base/hash.hpp"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <array>
#include <charconv>
#include <cstring>

#include "base/hash_words.hpp"

namespace preload {
namespace {

// The word of a tensor that holds `count` (< 8) bytes of `data` from byte `first` of the word on.
std::uint64_t partial_word(const std::byte* data, std::size_t count, unsigned first) noexcept {
  std::uint64_t word = 0;
  std::memcpy(reinterpret_cast<std::byte*>(&word) + first, data, count);
  return word;
}

}  // namespace

Hash128 hash_bytes(std::span<const std::byte> bytes, std::uint64_t offset_bytes) noexcept {
  Hash128 sum;
  const std::byte* data = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t word = offset_bytes / 8;
  if (const unsigned lead = static_cast<unsigned>(offset_bytes % 8); lead != 0 && left != 0) {
    const std::size_t count = std::min<std::size_t>(left, 8 - lead);
    sum += hash_word(partial_word(data, count, lead), word++);
    data += count;
    left -= count;
  }
  sum += hash_words(data, left / 8, word);
  word += left / 8;
  data += left / 8 * 8;
  if (left % 8 != 0) sum += hash_word(partial_word(data, left % 8, 0), word);
  return sum;
}

Hash128 hash_rows(const std::byte* data, std::uint64_t rows, std::uint64_t row_bytes,
                  std::uint64_t memory_stride, std::uint64_t offset_bytes,
                  std::uint64_t index_stride) noexcept {
  if (memory_stride == row_bytes && index_stride == row_bytes) {
    return hash_bytes({data, rows * row_bytes}, offset_bytes);
  }
  Hash128 sum;
  for (std::uint64_t r = 0; r < rows; ++r) {
    sum += hash_bytes({data + r * memory_stride, row_bytes}, offset_bytes + r * index_stride);
  }
  return sum;
}

std::string to_hex(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.hi, hash.lo); }

std::optional<Hash128> hash_from_hex(std::string_view hex) {
  if (hex.size() != 32) return std::nullopt;
  Hash128 hash;
  for (auto [part, out] : {std::pair{hex.substr(0, 16), &hash.hi}, {hex.substr(16), &hash.lo}}) {
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), *out, 16);
    if (error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  }
  return hash;
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  std::string hex;
  hex.reserve(2 * digest.size());
  for (unsigned char byte : digest) fmt::format_to(std::back_inserter(hex), "{:02x}", byte);
  return hex;
}

}  // namespace preload
