// SPDX-License-Identifier: Apache-2.0
#include "load/host_rows.hpp"

#include <cstring>

#include "load/convert_rows.hpp"

namespace preload {

void place_share(const Delivery& delivery, const Share& share, const std::byte* packed,
                 std::uint64_t pitch, const HostRows& target) {
  if (delivery.converts()) {
    convert_rows({packed, pitch, target.data, target.stride, target.rows,
                  share.bytes / (dtype_bits(delivery.from) / 8)},
                 delivery.from, delivery.to);
    return;
  }
  for (std::uint64_t row = 0; row < target.rows; ++row) {
    std::memcpy(target.data + row * target.stride, packed + row * pitch, share.bytes);
  }
}

Hash128 hash_share(const Delivery& delivery, const Share& share, const HostRows& target) noexcept {
  const bool one = target.rows == 1;
  return hash_rows(target.data, target.rows, share.target_bytes,
                   one ? share.target_bytes : target.stride, share.target_offset,
                   one ? share.target_bytes : delivery.target_stride);
}

}  // namespace preload
