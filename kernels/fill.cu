// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "fill.hpp"

namespace preload::kernels {

namespace {

constexpr int kThreads = 256;

__global__ void fill_kernel(void* target, std::uint64_t bytes, std::uint64_t pattern) {
  const std::uint64_t words = bytes / 8;
  const std::uint64_t thread = static_cast<std::uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
  for (std::uint64_t k = thread; k < words; k += static_cast<std::uint64_t>(gridDim.x) * kThreads) {
    static_cast<std::uint64_t*>(target)[k] = pattern;
  }
  if (thread < bytes % 8) {
    static_cast<unsigned char*>(target)[words * 8 + thread] =
        static_cast<unsigned char>(pattern >> (8 * thread));
  }
}

}  // namespace

int fill_pattern(void* target, std::uint64_t bytes, std::uint64_t pattern,
                 CUstream_st* stream) noexcept {
  if (bytes == 0) return cudaSuccess;
  if (pattern == 0) return cudaMemsetAsync(target, 0, bytes, stream);
  const std::uint64_t wanted = (bytes / 8 + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(wanted < 1 ? 1 : wanted < 4096 ? wanted : 4096);
  fill_kernel<<<blocks, kThreads, 0, stream>>>(target, bytes, pattern);
  return cudaGetLastError();
}

}  // namespace preload::kernels
