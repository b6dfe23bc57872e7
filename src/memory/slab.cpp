// SPDX-License-Identifier: Apache-2.0
#include "memory/slab.hpp"

#include <fmt/format.h>

#include "memory/host_memfd.hpp"
#ifdef PRELOAD_HAVE_CUDA
#include "memory/cuda_ipc.hpp"
#include "memory/cuda_vmm.hpp"
#else
#include "memory/device.hpp"
#endif

namespace preload {

std::string_view handle_kind_name(HandleKind kind) noexcept {
  switch (kind) {
    case HandleKind::kHost:
      return "host";
    case HandleKind::kVmm:
      return "vmm";
    case HandleKind::kCudaIpc:
      return "cuda-ipc";
  }
  return "unknown";
}

std::unique_ptr<SlabMemory> allocate_slabs(HandleKind kind, const std::vector<SlabSpec>& slabs,
                                           [[maybe_unused]] int device) {
  switch (kind) {
    case HandleKind::kHost:
      return std::make_unique<HostMemfd>(slabs);
#ifdef PRELOAD_HAVE_CUDA
    case HandleKind::kVmm:
      return std::make_unique<CudaVmm>(slabs, device);
    case HandleKind::kCudaIpc:
      return std::make_unique<CudaIpc>(slabs, device);
#else
    case HandleKind::kVmm:
    case HandleKind::kCudaIpc:
      throw Error(Errc::kDevice, no_devices_reason());
#endif
  }
  throw Error(Errc::kInternal, "unknown kind of slab memory");
}

std::unique_ptr<MappedSlabs> map_peer_slabs(HandleKind kind, const std::vector<SlabSpec>& slabs,
                                            const std::vector<Fd>& fds, [[maybe_unused]] int device,
                                            bool writable) {
  if (fds.size() != slabs.size()) {
    throw Error(Errc::kDevice, fmt::format("another process sent {} slabs instead of {}",
                                           fds.size(), slabs.size()));
  }
  if (kind == HandleKind::kHost) return std::make_unique<PeerMemfds>(slabs, fds, writable);
#ifdef PRELOAD_HAVE_CUDA
  if (kind == HandleKind::kVmm) return std::make_unique<PeerVmm>(slabs, fds, device, writable);
#endif
  throw Error(Errc::kDevice, fmt::format("memory of kind {} cannot be written by other ranks",
                                         handle_kind_name(kind)));
}

}  // namespace preload
