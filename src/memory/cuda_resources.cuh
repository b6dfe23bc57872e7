// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "base/unique.hpp"
#include "memory/cuda_driver.cuh"

// Owning handles of the CUDA runtime. Needs CUDA's headers, hence .cuh.
namespace preload {

struct StreamTraits {
  using Handle = cudaStream_t;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle stream) noexcept {
    // What is in flight may still use memory whose owner is destroyed after the stream.
    cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
  }
};
using Stream = Unique<StreamTraits>;

struct EventTraits {
  using Handle = cudaEvent_t;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle event) noexcept { cudaEventDestroy(event); }
};
using Event = Unique<EventTraits>;

struct DeviceMemoryTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle memory) noexcept { cudaFree(memory); }
};
using DeviceMemory = Unique<DeviceMemoryTraits>;

struct PinnedTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle memory) noexcept { cudaHostUnregister(memory); }
};
using Pinned = Unique<PinnedTraits>;  // the registration, not the memory

inline Stream make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a CUDA stream");
  return Stream(stream);
}

// Waits on it sleep: loaders have more threads than cores to spin on.
inline Event make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
             "creating a CUDA event");
  return Event(event);
}

inline DeviceMemory allocate_device(std::uint64_t bytes, const char* what) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), what);
  return DeviceMemory(memory);
}

inline Pinned pin(void* memory, std::uint64_t bytes) {
  check_cuda(cudaHostRegister(memory, bytes, cudaHostRegisterDefault),
             "pinning the loader's host buffers (is the locked-memory limit, ulimit -l, too low?)");
  return Pinned(memory);
}

}  // namespace preload
