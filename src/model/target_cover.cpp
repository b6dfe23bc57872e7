// SPDX-License-Identifier: Apache-2.0
#include "model/target_cover.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "model/extent.hpp"

namespace preload {
namespace {

// A half-open interval on each of the tensor's axes.
struct Box {
  Dims begin;
  Dims end;
};

// The tensor's axes by falling stride, when each stride steps over all the smaller ones, so that an
// offset names one index; nothing for layouts whose elements share places.
std::optional<std::vector<std::size_t>> nested_axes(const TargetTensor& tensor) {
  std::vector<std::size_t> axes(tensor.shape.size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  std::ranges::stable_sort(axes, std::greater{}, [&](std::size_t a) { return tensor.strides[a]; });
  std::int64_t reach = 1;  // elements up to the last of the smaller axes
  for (auto at = axes.rbegin(); at != axes.rend(); ++at) {
    if (tensor.shape[*at] == 1) continue;
    if (tensor.strides[*at] < reach) return std::nullopt;
    reach += (tensor.shape[*at] - 1) * tensor.strides[*at];
  }
  return axes;
}

// The move's target as a box of the tensor's axes, when it is one.
std::optional<Box> box_of(const TargetTensor& tensor, const Move& move,
                          const std::vector<std::size_t>& axes) {
  Box box{tensor.shape, tensor.shape};
  std::int64_t rest = move.target_offset;
  for (const std::size_t axis : axes) {
    const bool real = tensor.shape[axis] > 1;
    const std::int64_t index = real ? rest / tensor.strides[axis] : 0;
    if (real) rest -= index * tensor.strides[axis];
    if (index >= tensor.shape[axis]) return std::nullopt;
    box.begin[axis] = index;
    box.end[axis] = index + 1;
  }
  if (rest != 0) return std::nullopt;
  for (std::size_t i = 0; i < move.sizes.size(); ++i) {
    if (move.sizes[i] == 1) continue;
    // A run over an axis, or over several that follow each other without a gap: give each of them
    // its part, from the smallest.
    std::int64_t left = move.sizes[i];
    std::int64_t stride = move.target_strides[i];
    for (auto at = axes.rbegin(); at != axes.rend() && left > 1; ++at) {
      const std::int64_t extent = tensor.shape[*at];
      if (extent == 1 || tensor.strides[*at] != stride) continue;
      if (box.end[*at] - box.begin[*at] != 1) return std::nullopt;
      if (box.begin[*at] + left <= extent) {
        box.end[*at] = box.begin[*at] + left;
        left = 1;
      } else {
        if (box.begin[*at] != 0 || left % extent != 0) return std::nullopt;
        box.end[*at] = extent;
        left /= extent;
        stride *= extent;
      }
    }
    if (left > 1) return std::nullopt;
  }
  return box;
}

bool intersect(const Box& a, const Box& b) {
  for (std::size_t i = 0; i < a.begin.size(); ++i) {
    if (a.begin[i] >= b.end[i] || b.begin[i] >= a.end[i]) return false;
  }
  return true;
}

std::optional<TargetCover> cover_by_boxes(const TargetTensor& tensor) {
  const auto axes = nested_axes(tensor);
  if (!axes) return std::nullopt;
  std::vector<Box> boxes;
  std::int64_t reached = 0;
  for (const Move& move : tensor.moves) {
    if (element_count(move.sizes) == 0) continue;
    const std::optional<Box> box = box_of(tensor, move, *axes);
    if (!box) return std::nullopt;
    for (const Box& other : boxes) {
      if (intersect(*box, other)) return TargetCover::kOverlap;
    }
    boxes.push_back(*box);
    reached += element_count(move.sizes);
  }
  return reached == element_count(tensor.shape) ? TargetCover::kWhole : TargetCover::kPart;
}

// Calls visit(offset) for each element of a strided shape.
template <class Visit>
void each_offset(const Dims& sizes, const Dims& strides, std::int64_t offset, std::size_t axis,
                 const Visit& visit) {
  if (axis == sizes.size()) {
    visit(static_cast<std::size_t>(offset));
    return;
  }
  for (std::int64_t i = 0; i < sizes[axis]; ++i) {
    each_offset(sizes, strides, offset + i * strides[axis], axis + 1, visit);
  }
}

TargetCover cover_by_elements(const TargetTensor& tensor) {
  const auto extent = static_cast<std::size_t>(extent_elements(tensor.shape, tensor.strides));
  std::vector<bool> element(extent, false);
  std::vector<bool> written(extent, false);
  each_offset(tensor.shape, tensor.strides, 0, 0, [&](std::size_t at) { element[at] = true; });
  bool outside = false;
  bool overlap = false;
  for (const Move& move : tensor.moves) {
    each_offset(move.sizes, move.target_strides, move.target_offset, 0, [&](std::size_t at) {
      outside = outside || !element[at];
      overlap = overlap || written[at];
      written[at] = true;
    });
  }
  if (outside) return TargetCover::kOutside;
  if (overlap) return TargetCover::kOverlap;
  return element == written ? TargetCover::kWhole : TargetCover::kPart;
}

}  // namespace

TargetCover target_cover(const TargetTensor& tensor) {
  if (tensor.moves.empty()) {
    return element_count(tensor.shape) == 0 ? TargetCover::kWhole : TargetCover::kPart;
  }
  const std::optional<TargetCover> cover = cover_by_boxes(tensor);
  return cover ? *cover : cover_by_elements(tensor);
}

}  // namespace preload
