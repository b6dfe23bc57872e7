// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "bench/limits.hpp"
#include "memory/cuda_resources.cuh"

namespace preload::bench {

// Median GB/s over nine timed runs of `queue(stream)`, after one to warm up.
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

}  // namespace preload::bench
