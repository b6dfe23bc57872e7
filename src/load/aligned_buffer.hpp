// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fd.hpp"

namespace preload {

// Page-aligned memory that grows to what is asked of it; its contents do not outlive growth.
class AlignedBuffer {
 public:
  // Throws Error(kMemory).
  std::span<std::byte> reserve(std::size_t bytes);

 private:
  Mapping mapping_;
};

// What offsets, lengths and memory of direct reads from this file must be multiples of: what statx
// says, else one page.
std::uint64_t direct_alignment(int fd) noexcept;

}  // namespace preload
