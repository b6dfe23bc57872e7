// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "plan/slab_layout.hpp"

namespace preload {

enum class HandleKind : std::uint8_t { kHost, kVmm, kCudaIpc };
std::string_view handle_kind_name(HandleKind kind) noexcept;  // "host", "vmm", "cuda-ipc"

// One slab as others can have it: an fd for host and vmm, 64 bytes for cuda-ipc.
struct SlabHandle {
  HandleKind kind = HandleKind::kHost;
  TensorClass cls = TensorClass::kShared;
  std::uint64_t bytes = 0;
  Fd fd;                  // host, vmm
  std::string ipc_bytes;  // cuda-ipc: 64 raw bytes
};

// The memory of one rank: allocated whole, written while loading, then exported. Two kinds of
// address: host memory is written by the CPU, device memory by the GPU.
class SlabMemory {
 public:
  virtual ~SlabMemory() = default;
  virtual HandleKind kind() const noexcept = 0;
  // First byte of each slab in this process's address space: host or device pointer.
  virtual std::byte* address(std::uint32_t slab) const noexcept = 0;
  // One descriptor per slab, for other ranks of this node to write while this one loads; see
  // map_peer_slabs. Throws Error(kDevice) for cuda-ipc, which has none.
  virtual std::vector<Fd> share() const = 0;
  // Nothing may be written afterwards. Host slabs are sealed.
  virtual std::vector<SlabHandle> export_handles() = 0;
  // Gives the mappings up; what was exported lives on (except cuda-ipc, which needs them).
  virtual void unmap() noexcept = 0;
};

// All slabs or an Error(kMemory) that says needed, free and who holds the rest; nothing is kept on
// failure. `device` is the CUDA ordinal; ignored for host memory.
std::unique_ptr<SlabMemory> allocate_slabs(HandleKind kind, const std::vector<SlabSpec>& slabs,
                                           int device);

// Another process's slabs, mapped here; unmapped on destruction. Device memory may
// lie on another GPU than `device`, which writes to it.
class MappedSlabs {
 public:
  virtual ~MappedSlabs() = default;
  virtual std::byte* address(std::uint32_t slab) const noexcept = 0;
};
// `fds` as share() gave them, to be written to; or exported, to be read. Throws Error(kDevice or
// kMemory) when they cannot be mapped.
std::unique_ptr<MappedSlabs> map_peer_slabs(HandleKind kind, const std::vector<SlabSpec>& slabs,
                                            const std::vector<Fd>& fds, int device,
                                            bool writable = true);

}  // namespace preload
