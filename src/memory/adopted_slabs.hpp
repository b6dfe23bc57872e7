// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "memory/slab.hpp"

namespace preload {

// Memory that another process filled and exported, as its successor holds it: mapped to be read,
// until unmap(), and exported as it came.
class AdoptedSlabs final : public SlabMemory {
 public:
  // Throws Error(kDevice or kMemory) when a slab is not such memory or smaller than `slabs` say.
  AdoptedSlabs(HandleKind kind, const std::vector<SlabSpec>& slabs, std::vector<SlabHandle> handles,
               int device);

  HandleKind kind() const noexcept override { return kind_; }
  std::byte* address(std::uint32_t slab) const noexcept override { return mapped_->address(slab); }
  std::vector<Fd> share() const override;  // never: nobody writes it any more
  std::vector<SlabHandle> export_handles() override { return std::move(handles_); }
  void unmap() noexcept override { mapped_.reset(); }

 private:
  HandleKind kind_;
  std::vector<SlabHandle> handles_;
  std::unique_ptr<MappedSlabs> mapped_;
};

}  // namespace preload
