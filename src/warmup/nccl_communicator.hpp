// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "comm/mpi_session.hpp"
#include "comm/nccl_library.hpp"
#include "warmup/traffic.hpp"

namespace preload::warmup {

// A communicator as engines form it, and the operations that are timed on it. Every call returns
// when NCCL has done its part on the host, also where NCCL_COMM_BLOCKING=0, which goes before what
// is asked for, makes NCCL's own return earlier.
class NcclCommunicator {
 public:
  // Collective over its ranks. `use_device` makes the GPU the calling thread's. Throws
  // Error(kLauncher) when NCCL refuses or takes longer than the wait allows, Cancelled. The wait's
  // cancel outlives the communicator.
  NcclCommunicator(const NcclLibrary& library, const ncclUniqueId& id, int rank, int ranks,
                   const std::function<void()>& use_device, const Wait& wait);
  // Gives up what is queued: a rank that is gone is waited for by nobody.
  ~NcclCommunicator();
  NcclCommunicator(NcclCommunicator&& other) noexcept;
  NcclCommunicator& operator=(NcclCommunicator&&) = delete;

  // Queues one: `bytes` as in warmup::Message.
  void enqueue(Operation operation, std::uint64_t bytes, const std::byte* source, std::byte* target,
               void* stream) const;
  void check() const;  // throws what went wrong with what is queued
  // When all ranks are here, and nothing is queued.
  void destroy();

 private:
  void queue(Operation operation, std::uint64_t bytes, const std::byte* source, std::byte* target,
             void* stream) const;
  // Until NCCL has done its part; `look` is called meanwhile, and may throw.
  void settle(const char* what, const std::function<void()>& look) const;
  void give_up() noexcept;
  void exchange_with_all(std::size_t bytes, const std::byte* source, std::byte* target,
                         cudaStream_t stream) const;
  void pass_on(std::size_t bytes, const std::byte* source, std::byte* target,
               cudaStream_t stream) const;

  const NcclLibrary& library_;
  const Cancel& cancel_;
  const int rank_, ranks_;
  ncclComm_t comm_ = nullptr;
  bool blocking_ = true;
};

}  // namespace preload::warmup
