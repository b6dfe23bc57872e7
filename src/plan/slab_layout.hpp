// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "model/copy_program.hpp"

namespace preload {

inline constexpr std::uint64_t kSlabGranularityBytes = 2 * kMiB;
inline constexpr std::uint64_t kTensorAlignmentBytes = 512;
inline constexpr std::uint64_t kMaxSlabBytes = 8 * kGiB;

struct SlabSpec {
  std::uint64_t bytes = 0;  // multiple of the granularity
  TensorClass cls = TensorClass::kShared;
  friend bool operator==(const SlabSpec&, const SlabSpec&) = default;
};
// Where a tensor lies; a zero-size tensor has a place and no bytes; an alias has its target's.
struct Placement {
  std::uint32_t slab = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // of the tensor's extent: (max element index + 1) * element size
  friend bool operator==(const Placement&, const Placement&) = default;
};
struct SlabLayout {
  std::vector<SlabSpec> slabs;
  std::vector<Placement> placements;  // one per program tensor
  std::uint64_t total_bytes() const noexcept;
  friend bool operator==(const SlabLayout&, const SlabLayout&) = default;
};

// Packs in order, 512-byte aligned, slabs of at most `max_slab_bytes` or one larger tensor.
SlabLayout lay_out(const CopyProgram& program, std::uint64_t max_slab_bytes = kMaxSlabBytes);

}  // namespace preload
