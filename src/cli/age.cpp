// SPDX-License-Identifier: Apache-2.0
#include "cli/age.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

namespace preload::cli {
namespace {

struct Unit {
  char letter;
  std::time_t seconds;
};
constexpr auto kUnits = std::to_array<Unit>({{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}});

}  // namespace

std::optional<std::time_t> parse_age(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const auto* const unit = std::ranges::find(kUnits, text.back(), &Unit::letter);
  if (unit == kUnits.end()) return std::nullopt;
  std::uint32_t count = 0;
  const char* const end = text.data() + text.size() - 1;
  const auto [at, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || at != end) return std::nullopt;
  return std::time_t{count} * unit->seconds;
}

std::string format_age(std::time_t seconds) {
  seconds = std::max<std::time_t>(seconds, 0);  // clocks of hosts that share a home differ
  for (const Unit& unit : kUnits) {
    if (seconds >= unit.seconds) return fmt::format("{}{}", seconds / unit.seconds, unit.letter);
  }
  return "0s";
}

}  // namespace preload::cli
