// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/hash.hpp"
#include "load/pieces.hpp"

namespace preload {

// Rows of a delivery's target in host memory, `stride` apart; with one row it counts for nothing.
struct HostRows {
  std::byte* data = nullptr;
  std::uint64_t stride = 0;
  std::uint64_t rows = 1;
};

// Spreads packed source rows of `pitch` bytes to their places, converted where the delivery says.
void place_share(const Delivery& delivery, const Share& share, const std::byte* packed,
                 std::uint64_t pitch, const HostRows& target);

// Contribution of placed rows to the hash of the tensor that the delivery goes to.
Hash128 hash_share(const Delivery& delivery, const Share& share, const HostRows& target) noexcept;

}  // namespace preload
