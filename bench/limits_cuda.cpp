// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"
#include "bench/limits.hpp"
#include "hash.hpp"
#include "memory/cuda_resources.cuh"
#include "memory/device.hpp"

namespace preload::bench {

namespace {

struct HostAllocationTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle memory) noexcept { cudaFreeHost(memory); }
};

// Median over nine timed runs of `queue(stream)`, after one to warm up.
template <class Queue>
double time_on_gpu(std::uint64_t bytes, Queue queue) {
  const Stream stream = make_stream();
  cudaEvent_t raw[2] = {nullptr, nullptr};
  for (cudaEvent_t& event : raw) check_cuda(cudaEventCreate(&event), "creating an event");
  const Event begin(raw[0]);
  const Event end(raw[1]);
  std::vector<double> rates;
  for (int i = 0; i < 10; ++i) {
    check_cuda(cudaEventRecord(begin.get(), stream.get()), "timing");
    queue(stream.get());
    check_cuda(cudaEventRecord(end.get(), stream.get()), "timing");
    check_cuda(cudaEventSynchronize(end.get()), "timing");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "timing");
    if (i > 0) rates.push_back(static_cast<double>(bytes) / 1e6 / ms);
  }
  return median(rates);
}

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

double device_read_gb_per_s(int device) {
  constexpr std::uint64_t kBytes = 2 * kGiB;
  set_device(device);
  const DeviceMemory from = allocate_device(kBytes, "device memory");
  const DeviceMemory to = allocate_device(kBytes, "device memory");
  return time_on_gpu(kBytes, [&](cudaStream_t stream) {
    check_cuda(cudaMemcpyAsync(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice, stream),
               "copying");
  });
}

double gpu_hash_gb_per_s(int device) {
  constexpr std::uint64_t kBytes = 2 * kGiB;
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
