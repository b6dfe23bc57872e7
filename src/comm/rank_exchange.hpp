// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace preload {

// Carries bytes between ranks that cannot write each other's memory.
class RankExchange {
 public:
  struct Message {
    std::uint32_t rank = 0;  // whom it goes to or comes from, by its number in the spread group
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;  // > 0; both sides name the same
  };

  virtual ~RankExchange() = default;
  // At most one message to and one from each rank; any two ranks name each other in the same calls,
  // counted without calls that name none. Host memory: done on return. Device memory: queued on
  // `stream`, a cudaStream_t; null for host memory. Called from one thread; another may set `stop`,
  // which ends a wait with an error. Throws Error(kLauncher or kDevice), Cancelled.
  virtual void exchange(std::span<const Message> out, std::span<const Message> in, void* stream,
                        const std::atomic<bool>& stop) = 0;
  // Throws what went wrong with exchanges that are queued.
  virtual void check() = 0;
  // Gives up what is queued, so that the GPU comes to an end with it. Nothing can be exchanged
  // afterwards.
  virtual void abort() noexcept = 0;
};

}  // namespace preload
