// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace preload::warmup {

// Where collectives find their memory and their order, and how long they take there. All of it is
// gone with this object.
class CollectiveDevice {
 public:
  virtual ~CollectiveDevice() = default;
  virtual void use() = 0;               // makes it the calling thread's
  virtual void* stream() noexcept = 0;  // as NCCL takes it
  virtual std::byte* source() noexcept = 0;
  virtual std::byte* target() noexcept = 0;  // as large as the source

  struct Work {
    std::function<void()> enqueue;  // one collective, on stream()
    int repetitions = 1;
    bool captured = false;       // out of a graph, as far as the device has them
    std::function<void()> wait;  // called while it runs: throws when there is nothing to wait for
  };
  // Seconds that one repetition takes. What is slow at its first time has happened before.
  virtual double time(const Work& work) = 0;
};

// Two buffers of `bytes` on a GPU. Throws Error(kMemory or kDevice).
std::unique_ptr<CollectiveDevice> make_cuda_device(int ordinal, std::uint64_t bytes);
// What could be allocated on it now.
std::uint64_t free_device_bytes(int ordinal);

}  // namespace preload::warmup
