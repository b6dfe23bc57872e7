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

// How host buffers are shared out where each thread reads a chunk and places it itself.
struct RingShape {
  int threads = 1;
  std::uint64_t chunk_bytes = 0;    // one a thread
  std::uint64_t scratch_bytes = 0;  // the same, for rows that are gathered
};
// Throws Error(kUsage) when `ring_bytes` cannot hold one thread with the smallest chunks.
RingShape shape_host_ring(std::uint64_t ring_bytes, int threads, std::uint64_t max_chunk_bytes);

// The same where threads fill batches together, chunk by chunk, that are copied whole.
struct BatchRingShape {
  int threads = 1;
  int slots = 0;  // batches that are read or copied at a time
  std::uint64_t batch_bytes = 0;
  std::uint64_t chunk_bytes = 0;
  std::uint64_t scratch_bytes = 0;  // one a thread
  std::uint64_t ring_bytes() const noexcept;
};
BatchRingShape shape_batch_ring(std::uint64_t ring_bytes, int threads,
                                std::uint64_t max_batch_bytes, std::uint64_t max_chunk_bytes);

}  // namespace preload
