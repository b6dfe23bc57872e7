// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "load/load_job.hpp"
#include "memory/cuda_resources.cuh"

// What loading and hashing on the GPU share; private to load/. Needs CUDA's headers, hence .cuh.
namespace preload {

// Throws Error(kDevice) when a kernel could not be started.
inline void check_launch(int result, const char* what) {
  check_cuda(static_cast<cudaError_t>(result), what);
}

// The hashes' accumulators in device memory: one per block, then one per delivery.
class DeviceSums {
 public:
  DeviceSums(std::size_t blocks, std::size_t deliveries)
      : blocks_(blocks), deliveries_(deliveries) {
    memory_ = allocate_device(count() * sizeof(Hash128), "allocating the hashes' accumulators");
  }
  void clear(cudaStream_t stream) {
    check_cuda(cudaMemsetAsync(memory_.get(), 0, count() * sizeof(Hash128), stream),
               "clearing the hashes' accumulators");
  }
  std::uint64_t* source(std::size_t block) const noexcept { return at(block); }
  std::uint64_t* served(std::size_t delivery) const noexcept { return at(blocks_ + delivery); }

  LoadSums download(cudaStream_t stream) const {
    std::vector<Hash128> all(count());
    check_cuda(cudaMemcpyAsync(all.data(), memory_.get(), all.size() * sizeof(Hash128),
                               cudaMemcpyDeviceToHost, stream),
               "reading the hashes");
    check_cuda(cudaStreamSynchronize(stream), "hashing on the GPU");
    const auto split = all.begin() + static_cast<std::ptrdiff_t>(blocks_);
    return {{all.begin(), split}, {split, split + static_cast<std::ptrdiff_t>(deliveries_)}};
  }

 private:
  std::size_t count() const noexcept { return blocks_ + deliveries_ + 1; }  // never empty
  std::uint64_t* at(std::size_t index) const noexcept {
    return static_cast<std::uint64_t*>(memory_.get()) + 2 * index;
  }
  std::size_t blocks_, deliveries_;
  DeviceMemory memory_;
};
static_assert(sizeof(Hash128) == 16, "the accumulators are read as Hash128");

}  // namespace preload
