// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"
#include "bench/gpu_timing.cuh"
#include "hash.hpp"
#include "hash_limits.hpp"
#include "memory/device.hpp"

namespace preload::bench {

namespace {

constexpr std::uint64_t kBytes = 2 * kGiB;

}  // namespace

double device_read_gb_per_s(int device) {
  set_device(device);
  const DeviceMemory from = allocate_device(kBytes, "device memory");
  const DeviceMemory to = allocate_device(kBytes, "device memory");
  return time_on_gpu(kBytes, [&](cudaStream_t stream) {
    check_cuda(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, stream),
               "copying");
  });
}

double gpu_hash_gb_per_s(int device) {
  set_device(device);
  const DeviceMemory memory = allocate_device(kBytes, "device memory");
  const DeviceMemory sum = allocate_device(16, "device memory");
  check_cuda(cudaMemset(memory.get(), 0x5a, kBytes), "filling");
  check_cuda(cudaMemset(sum.get(), 0, 16), "clearing");
  return time_on_gpu(kBytes, [&](cudaStream_t stream) {
    check_cuda(
        static_cast<cudaError_t>(kernels::hash_rows(
            {memory.get(), 1, kBytes, 0, 0, 0}, static_cast<std::uint64_t*>(sum.get()), stream)),
        "hashing");
  });
}

}  // namespace preload::bench
