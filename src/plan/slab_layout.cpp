// SPDX-License-Identifier: Apache-2.0
#include "plan/slab_layout.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "model/extent.hpp"

namespace preload {
namespace {

// The slab of a class that still takes tensors, and how much of it is used.
struct OpenSlab {
  std::uint32_t index = 0;
  std::uint64_t used = 0;
};

}  // namespace

std::uint64_t SlabLayout::total_bytes() const noexcept {
  std::uint64_t total = 0;
  for (const SlabSpec& slab : slabs) total += slab.bytes;
  return total;
}

SlabLayout lay_out(const CopyProgram& program, std::uint64_t max_slab_bytes) {
  SlabLayout layout;
  layout.placements.resize(program.tensors.size());
  std::array<std::optional<OpenSlab>, 2> open;  // by class
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    const TargetTensor& tensor = program.tensors[i];
    if (tensor.alias) continue;
    const std::uint64_t bytes = extent_bytes(tensor);
    std::optional<OpenSlab>& slab = open[static_cast<std::size_t>(tensor.cls)];
    if (!slab || (slab->used > 0 && slab->used + bytes > max_slab_bytes)) {
      slab = OpenSlab{static_cast<std::uint32_t>(layout.slabs.size()), 0};
      layout.slabs.push_back({kSlabGranularityBytes, tensor.cls});
    }
    layout.placements[i] = {slab->index, slab->used, bytes};
    slab->used = align_up(slab->used + bytes, kTensorAlignmentBytes);
    SlabSpec& spec = layout.slabs[slab->index];
    spec.bytes = std::max(spec.bytes, align_up(slab->used, kSlabGranularityBytes));
  }
  for (std::size_t i = 0; i < program.tensors.size(); ++i) {
    if (program.tensors[i].alias) {
      layout.placements[i] = layout.placements[*program.tensors[i].alias];
    }
  }
  return layout;
}

}  // namespace preload
