// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "load/device_sums.cuh"
#include "load/load_job.hpp"

// Placing what has landed on the GPU; private to load/. Needs CUDA's headers, hence .cuh.
namespace preload {

// Rows on the GPU, `stride` apart.
struct DeviceRows {
  std::byte* data = nullptr;
  std::uint64_t stride = 0;
};

// Hands pieces that lie packed on the GPU on to their places, and hashes them, on one stream.
class DevicePlacer {
 public:
  DevicePlacer(const LoadJob& job, const DeviceSums& sums, cudaStream_t stream)
      : job_(job), sums_(sums), stream_(stream) {}

  // To all places that can be written from here.
  void place(const Piece& piece, std::byte* landed) const;
  // One delivery's share of a piece, converted where it says so.
  void copy(const Piece& piece, const Delivery& delivery, const Share& share,
            const std::byte* landed, const DeviceRows& target) const;
  // Adds placed rows to the hash of the tensor that the delivery goes to, where that adds up from
  // its copies.
  void hash(const Piece& piece, std::uint32_t delivery, const Share& share,
            const DeviceRows& placed) const;

 private:
  const LoadJob& job_;
  const DeviceSums& sums_;
  cudaStream_t stream_;
};

}  // namespace preload
