// SPDX-License-Identifier: Apache-2.0
#include "load/read_method.hpp"

#include <array>

#include "base/error.hpp"
#include "load/uring.hpp"

namespace preload {

namespace {
constexpr std::array<std::string_view, 4> kNames{"pread", "mmap", "direct", "uring"};
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

void require_built(ReadMethod method) {
  if (method != ReadMethod::kUring || Uring::is_built()) return;
  throw Error(Errc::kUsage,
              "--reader uring: this build has no liburing; use --reader direct, or install "
              "liburing-dev and build again");
}

}  // namespace preload
