// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_ipc.hpp"

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "memory/cuda_driver.cuh"
#include "memory/device_memory.hpp"

namespace preload {

CudaIpc::CudaIpc(const std::vector<SlabSpec>& slabs, int device) : device_(device) {
  require_device_memory(slabs, device);
  slabs_.reserve(slabs.size());
  try {
    for (const SlabSpec& spec : slabs) {
      void* address = nullptr;
      check_cuda(cudaMalloc(&address, spec.bytes),
                 fmt::format("allocating {} of GPU memory", format_bytes(spec.bytes)));
      slabs_.push_back({spec, static_cast<std::byte*>(address)});
    }
  } catch (const Error& error) {
    free_all();
    if (error.code() != Errc::kMemory) throw;
    cudaGetLastError();  // an allocation that failed leaves its error behind
    throw_out_of_device_memory(slabs, device, error.what());
  }
}

CudaIpc::~CudaIpc() { free_all(); }

void CudaIpc::free_all() noexcept {
  if (!slabs_.empty()) cudaSetDevice(device_);
  for (const Slab& slab : slabs_) cudaFree(slab.address);
  slabs_.clear();
}

std::vector<Fd> CudaIpc::share() const {
  throw Error(Errc::kDevice, "memory for --export cuda-ipc cannot be written by other ranks");
}

std::vector<SlabHandle> CudaIpc::export_handles() {
  std::vector<SlabHandle> handles;
  handles.reserve(slabs_.size());
  for (const Slab& slab : slabs_) {
    cudaIpcMemHandle_t ipc{};
    check_cuda(cudaIpcGetMemHandle(&ipc, slab.address), "making a CUDA IPC handle");
    SlabHandle handle;
    handle.kind = HandleKind::kCudaIpc;
    handle.cls = slab.spec.cls;
    handle.bytes = slab.spec.bytes;
    handle.ipc_bytes.assign(ipc.reserved, sizeof ipc.reserved);
    handles.push_back(std::move(handle));
  }
  return handles;
}

}  // namespace preload
