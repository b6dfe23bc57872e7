// SPDX-License-Identifier: Apache-2.0
#include "load/read_method.hpp"

#include <array>

namespace preload {

namespace {
constexpr std::array<std::string_view, 3> kNames{"pread", "mmap", "direct"};
}

std::string_view read_method_name(ReadMethod method) noexcept {
  return kNames[static_cast<std::size_t>(method)];
}

std::optional<ReadMethod> read_method_from_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<ReadMethod>(i);
  }
  return std::nullopt;
}

}  // namespace preload
