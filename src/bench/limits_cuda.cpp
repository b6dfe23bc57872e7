// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"
#include "bench/gpu_timing.cuh"
#include "bench/limits.hpp"
#include "memory/device.hpp"

namespace preload::bench {

namespace {

struct HostAllocationTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle memory) noexcept { cudaFreeHost(memory); }
};

}  // namespace

double pinned_copy_gb_per_s(int device) {
  constexpr std::uint64_t kBytes = 64 * kMiB;
  constexpr int kCopies = 32;
  set_device(device);
  void* raw = nullptr;
  check_cuda(cudaMallocHost(&raw, kBytes), "pinned memory");
  const Unique<HostAllocationTraits> host(raw);
  const DeviceMemory target = allocate_device(kBytes, "device memory");
  return time_on_gpu(kCopies * kBytes, [&](cudaStream_t stream) {
    for (int i = 0; i < kCopies; ++i) {
      check_cuda(cudaMemcpyAsync(target.get(), host.get(), kBytes, cudaMemcpyHostToDevice, stream),
                 "copying");
    }
  });
}

}  // namespace preload::bench
