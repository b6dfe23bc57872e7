// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "memory/slab.hpp"

namespace preload {

// Host memory as memfds: writable here while loading; sealed on export, so that no client can
// write, truncate or grow what the others read.
class HostMemfd final : public SlabMemory {
 public:
  explicit HostMemfd(const std::vector<SlabSpec>& slabs);

  HandleKind kind() const noexcept override { return HandleKind::kHost; }
  std::byte* address(std::uint32_t slab) const noexcept override {
    return slabs_[slab].mapping.data();
  }
  std::vector<Fd> share() const override;
  std::vector<SlabHandle> export_handles() override;
  void unmap() noexcept override;

 private:
  struct Slab {
    SlabSpec spec;
    Fd fd;
    Mapping mapping;
  };
  std::vector<Slab> slabs_;
};

class PeerMemfds final : public MappedSlabs {
 public:
  PeerMemfds(const std::vector<SlabSpec>& slabs, const std::vector<Fd>& fds, bool writable);
  std::byte* address(std::uint32_t slab) const noexcept override { return mappings_[slab].data(); }

 private:
  std::vector<Mapping> mappings_;
};

}  // namespace preload
