// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <chrono>
#include <thread>
#include <utility>

#include "memory/cuda_resources.cuh"
#include "warmup/collective_device.hpp"

namespace preload::warmup {
namespace {

// Collectives of a few microseconds end while it spins, others leave the CPU to NCCL's threads.
constexpr auto kSpin = std::chrono::microseconds(200);
constexpr auto kPoll = std::chrono::microseconds(50);

struct GraphTraits {
  using Handle = cudaGraph_t;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle graph) noexcept { cudaGraphDestroy(graph); }
};
struct GraphExecTraits {
  using Handle = cudaGraphExec_t;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle graph) noexcept { cudaGraphExecDestroy(graph); }
};
using Graph = Unique<GraphTraits>;
using GraphExec = Unique<GraphExecTraits>;

Event make_timing_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "creating a CUDA event");
  return Event(event);
}

class CudaDevice final : public CollectiveDevice {
 public:
  CudaDevice(int ordinal, std::uint64_t bytes) : ordinal_(ordinal) {
    use();
    source_ = allocate_device(bytes, "allocating the buffers that collectives are tuned with");
    target_ = allocate_device(bytes, "allocating the buffers that collectives are tuned with");
    check_cuda(cudaMemset(source_.get(), 0, bytes), "filling a buffer");
    check_cuda(cudaMemset(target_.get(), 0, bytes), "filling a buffer");
    check_cuda(cudaDeviceSynchronize(), "filling a buffer");
    begin_ = make_timing_event();
    end_ = make_timing_event();
    stream_ = make_stream();
  }

  void use() override { check_cuda(cudaSetDevice(ordinal_), "choosing a GPU"); }
  void* stream() noexcept override { return stream_.get(); }
  std::byte* source() noexcept override { return static_cast<std::byte*>(source_.get()); }
  std::byte* target() noexcept override { return static_cast<std::byte*>(target_.get()); }

  double time(const Work& work) override {
    // The first one makes NCCL connect what the collective needs, which no graph may, and lets the
    // ranks begin together.
    work.enqueue();
    if (!work.captured) {
      record(begin_);
      for (int i = 0; i < work.repetitions; ++i) work.enqueue();
      return finish(work);
    }
    record(begin_);
    finish(work);
    const GraphExec graph = capture(work);
    check_cuda(cudaGraphLaunch(graph.get(), stream_.get()), "launching a graph of collectives");
    record(begin_);
    check_cuda(cudaGraphLaunch(graph.get(), stream_.get()), "launching a graph of collectives");
    return finish(work);
  }

 private:
  void record(const Event& event) const {
    check_cuda(cudaEventRecord(event.get(), stream_.get()), "timing a collective");
  }

  // Waits for all that is queued; seconds of one repetition since begin_.
  double finish(const Work& work) const {
    record(end_);
    const auto spin_end = std::chrono::steady_clock::now() + kSpin;
    for (;;) {
      const cudaError_t state = cudaEventQuery(end_.get());
      if (state == cudaSuccess) break;
      if (state != cudaErrorNotReady) check_cuda(state, "running a collective");
      work.wait();
      if (std::chrono::steady_clock::now() >= spin_end) std::this_thread::sleep_for(kPoll);
    }
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()),
               "timing a collective");
    return static_cast<double>(milliseconds) / 1e3 / work.repetitions;
  }

  // NCCL may allocate while it is captured: relaxed, as for engines.
  GraphExec capture(const Work& work) const {
    check_cuda(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeRelaxed),
               "capturing collectives");
    cudaGraph_t captured = nullptr;
    try {
      for (int i = 0; i < work.repetitions; ++i) work.enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream_.get(), &captured);
      const Graph dropped(captured);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream_.get(), &captured), "capturing collectives");
    const Graph graph(captured);
    cudaGraphExec_t made = nullptr;
    check_cuda(cudaGraphInstantiateWithFlags(&made, graph.get(), 0),
               "making a graph of collectives");
    return GraphExec(made);
  }

  const int ordinal_;
  DeviceMemory source_, target_;
  Event begin_, end_;
  Stream stream_;
};

}  // namespace

std::unique_ptr<CollectiveDevice> make_cuda_device(int ordinal, std::uint64_t bytes) {
  return std::make_unique<CudaDevice>(ordinal, bytes);
}

std::uint64_t free_device_bytes(int ordinal) {
  check_cuda(cudaSetDevice(ordinal), "choosing a GPU");
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for free GPU memory");
  return free;
}

}  // namespace preload::warmup
