// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "memory/slab.hpp"

namespace preload {

// GPU memory of the driver's virtual memory management: each slab is one physical allocation that
// is exported as a POSIX fd. The fds alone keep the memory, whatever becomes of the context and of
// this process.
class CudaVmm final : public SlabMemory {
 public:
  CudaVmm(const std::vector<SlabSpec>& slabs, int device);
  ~CudaVmm() override { unmap(); }
  CudaVmm(const CudaVmm&) = delete;
  CudaVmm& operator=(const CudaVmm&) = delete;

  HandleKind kind() const noexcept override { return HandleKind::kVmm; }
  std::byte* address(std::uint32_t slab) const noexcept override;
  std::vector<Fd> share() const override;
  std::vector<SlabHandle> export_handles() override;
  void unmap() noexcept override;

 private:
  // One slab, as far as it has come: allocated, address reserved, mapped.
  struct Slab {
    SlabSpec spec;
    unsigned long long allocation = 0;  // CUmemGenericAllocationHandle
    unsigned long long address = 0;     // CUdeviceptr
    bool mapped = false;
  };
  void allocate(Slab& slab);

  int device_;
  std::vector<Slab> slabs_;
};

// Another process's slabs, on this GPU or one that it reaches directly.
class PeerVmm final : public MappedSlabs {
 public:
  PeerVmm(const std::vector<SlabSpec>& slabs, const std::vector<Fd>& fds, int device,
          bool writable);
  ~PeerVmm() override { unmap(); }
  PeerVmm(const PeerVmm&) = delete;
  PeerVmm& operator=(const PeerVmm&) = delete;
  std::byte* address(std::uint32_t slab) const noexcept override;

 private:
  struct Slab {
    std::uint64_t bytes = 0;
    unsigned long long address = 0;  // CUdeviceptr
    bool mapped = false;
  };
  void map(Slab& slab, int fd, int device, bool writable);
  void unmap() noexcept;

  std::vector<Slab> slabs_;
};

}  // namespace preload
