// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "memory/slab.hpp"

namespace preload {

// GPU memory shared by legacy IPC handles: one cudaMalloc a slab. It lives and dies with this
// process and its context, and clients can write to it.
class CudaIpc final : public SlabMemory {
 public:
  CudaIpc(const std::vector<SlabSpec>& slabs, int device);
  ~CudaIpc() override;
  CudaIpc(const CudaIpc&) = delete;
  CudaIpc& operator=(const CudaIpc&) = delete;

  HandleKind kind() const noexcept override { return HandleKind::kCudaIpc; }
  std::byte* address(std::uint32_t slab) const noexcept override { return slabs_[slab].address; }
  std::vector<Fd> share() const override;
  std::vector<SlabHandle> export_handles() override;
  void unmap() noexcept override {}  // the handles need the allocation

 private:
  struct Slab {
    SlabSpec spec;
    std::byte* address = nullptr;
  };
  void free_all() noexcept;

  int device_;
  std::vector<Slab> slabs_;
};

}  // namespace preload
