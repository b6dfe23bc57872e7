// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace preload {

inline constexpr std::uint64_t kKiB = 1ULL << 10;
inline constexpr std::uint64_t kMiB = 1ULL << 20;
inline constexpr std::uint64_t kGiB = 1ULL << 30;

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) noexcept {
  return (value + alignment - 1) / alignment * alignment;
}
// a * b, or nothing when it does not fit.
std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) noexcept;

std::string format_bytes(std::uint64_t bytes);  // "14.96 GiB"
// "512M", "8GiB", "4096": binary units; nothing when malformed or too large.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace preload
