// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace preload {

// "1 rank", "2 ranks": a count with its noun, given in the singular and regular in the plural.
std::string counted_of(std::uint64_t count, std::string_view noun);

std::string counted(std::integral auto count, std::string_view noun) {
  return counted_of(static_cast<std::uint64_t>(count), noun);
}

// "1 rank was", "2 ranks were": with the verb that goes with it, in both its forms.
std::string counted(std::integral auto count, std::string_view noun, std::string_view one,
                    std::string_view more) {
  return counted(count, noun).append(" ").append(count == 1 ? one : more);
}

}  // namespace preload
