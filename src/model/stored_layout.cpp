// SPDX-License-Identifier: Apache-2.0
#include "model/stored_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "checkpoint/problems.hpp"
#include "model/attributes.hpp"
#include "model/extent.hpp"
#include "model/left_alone.hpp"
#include "model/node_reads.hpp"
#include "model/target_dtype.hpp"

namespace preload {

StoredLayout::StoredLayout(const Checkpoint& checkpoint, const ModelSpec& spec,
                           const LayoutRequest& request, std::string unchecked)
    : checkpoint_(checkpoint),
      spec_(spec),
      dtype_(request.dtype),
      unchecked_(std::move(unchecked)) {
  const std::size_t count = checkpoint.tensors.size();
  std::vector<bool> ignored(count, false);
  const Leftovers leftovers =
      sort_leftovers(checkpoint, ignored, std::vector<std::string>(count), {}, request.ignore);
  if (!leftovers.idle.empty()) {
    throw Error(Errc::kModel, fmt::format("{}: --ignore-tensor {} matches no tensor",
                                          checkpoint.name, quote_list(leftovers.idle)));
  }
  left_alone_ = leftovers.left_alone;
  for (const LeftAlone& left : left_alone_) ignored[left.source] = true;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (!ignored[i]) served_.push_back(i);
  }
  if (served_.empty()) {
    throw Error(Errc::kModel,
                fmt::format("{}: no tensor is left to serve of {}", checkpoint.name, count));
  }
}

LayoutNotes StoredLayout::notes() const {
  LayoutNotes notes;
  notes.warnings.push_back(fmt::format(
      "{} is served as it is stored, and whether anything is missing is not checked: {}",
      checkpoint_.name, unchecked_));
  return notes;
}

CopyProgram StoredLayout::program(const RankCoords&) const {
  CopyProgram program;
  program.layout = "hf";
  program.left_alone = left_alone_;
  program.attributes_json =
      attributes_json(spec_, dtype_, Interval{0, spec_.num_hidden_layers}, program, {});
  program.tensors.reserve(served_.size());
  for (const std::uint32_t index : served_) {
    const SourceTensor& source = checkpoint_.tensors[index];
    TargetTensor& tensor = program.tensors.emplace_back();
    tensor.name = source.name;
    tensor.dtype = stored_or_cast(source.dtype, dtype_);
    tensor.shape = source.shape;
    tensor.strides = contiguous_strides(source.shape);
    const Conversion conversion =
        tensor.dtype == source.dtype ? Conversion::kNone : Conversion::kValue;
    tensor.moves.push_back({index, source.shape, 0, tensor.strides, 0, tensor.strides, conversion});
  }
  return program;
}

ShareSize StoredLayout::share(const RankCoords&) const {
  ShareSize share;
  for (const std::uint32_t index : served_) {
    const SourceTensor& source = checkpoint_.tensors[index];
    share.held_bytes +=
        element_bytes(element_count(source.shape), stored_or_cast(source.dtype, dtype_));
    share.read_bytes += source.bytes;
  }
  return share;
}

std::vector<RankReads> StoredLayout::node_reads(std::span<const RankCoords> node,
                                                std::uint64_t least_bytes) const {
  NodeReadSums sums(node.size(), least_bytes);
  for (const std::uint32_t index : served_) {
    const SourceTensor& source = checkpoint_.tensors[index];
    std::vector<NodeNeed> needs;
    for (std::uint32_t rank = 0; rank < node.size(); ++rank) {
      needs.push_back({rank, {0, element_count(source.shape)}, {0, 1}});
    }
    sums.add(std::move(needs), 1, 1, dtype_bits(source.dtype));
  }
  return sums.sums();
}

}  // namespace preload
