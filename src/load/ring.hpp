// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fd.hpp"

namespace preload {

// Anonymous host memory for the loader's buffers, on huge pages where the kernel has them.
class Ring {
 public:
  explicit Ring(std::uint64_t bytes);
  std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  Mapping mapping_;
  std::span<std::byte> bytes_;  // the aligned part
};

// Takes the pages of `bytes` now: pinning finds them in place, and all threads can share the work.
void touch_pages(std::span<std::byte> bytes) noexcept;

}  // namespace preload
