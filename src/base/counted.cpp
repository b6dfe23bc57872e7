// SPDX-License-Identifier: Apache-2.0
#include "base/counted.hpp"

#include <fmt/format.h>

namespace preload {

std::string counted_of(std::uint64_t count, std::string_view noun) {
  const bool sibilant = noun.ends_with("ch") || noun.ends_with('s') || noun.ends_with('x');
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : sibilant ? "es" : "s");
}

}  // namespace preload
