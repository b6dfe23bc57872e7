// SPDX-License-Identifier: Apache-2.0
#include "plan/served_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace preload {

namespace {

struct Axis {
  std::uint64_t size;
  std::uint64_t memory_stride;  // bytes
  std::uint64_t index_stride;   // bytes
};

bool is_row_major(const TargetTensor& tensor) {
  const Dims expected = contiguous_strides(tensor.shape);
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected[i]) return false;
  }
  return true;
}

void visit_axes(const std::vector<Axis>& axes, std::size_t depth, ServedRows rows,
                const std::function<void(const ServedRows&)>& visit) {
  if (depth == axes.size()) {
    visit(rows);
    return;
  }
  for (std::uint64_t i = 0; i < axes[depth].size; ++i) {
    visit_axes(axes, depth + 1, rows, visit);
    rows.memory_offset += axes[depth].memory_stride;
    rows.index_offset += axes[depth].index_stride;
  }
}

}  // namespace

std::vector<ServedHash> served_hash_sources(const CopyProgram& program, const LoadPlan& plan) {
  std::vector<ServedHash> sources;
  sources.reserve(program.tensors.size());
  for (const TargetTensor& tensor : program.tensors) {
    sources.push_back(tensor.alias           ? ServedHash::kAlias
                      : is_row_major(tensor) ? ServedHash::kCopies
                                             : ServedHash::kAfterLoad);
  }
  for (const FillOp& fill : plan.fills) {
    // Zeros add nothing to a hash; anything else adds wherever no copy comes after.
    if (fill.element_bits != 0) sources.at(fill.tensor) = ServedHash::kAfterLoad;
  }
  return sources;
}

void for_each_served_rows(const TargetTensor& tensor,
                          const std::function<void(const ServedRows&)>& visit) {
  if (element_count(tensor.shape) == 0) return;
  const unsigned bits = dtype_bits(tensor.dtype);
  if (is_row_major(tensor)) {
    const std::uint64_t bytes =
        (static_cast<std::uint64_t>(element_count(tensor.shape)) * bits + 7) / 8;
    visit({0, 1, bytes, bytes, 0, bytes});
    return;
  }
  if (bits % 8 != 0) {
    throw Error(Errc::kInternal, fmt::format("tensor '{}': elements of {} bits are served in "
                                             "row-major order only",
                                             tensor.name, bits));
  }
  const std::uint64_t element = bits / 8;
  const Dims index_strides = contiguous_strides(tensor.shape);
  ServedRows rows{0, 1, element, 0, 0, 0};
  std::vector<Axis> axes;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    const Axis axis{static_cast<std::uint64_t>(tensor.shape[i]),
                    static_cast<std::uint64_t>(tensor.strides[i]) * element,
                    static_cast<std::uint64_t>(index_strides[i]) * element};
    if (axis.size == 1) continue;
    const bool continues_row =
        axes.empty() && axis.memory_stride == rows.row_bytes && axis.index_stride == rows.row_bytes;
    if (continues_row) {
      rows.row_bytes *= axis.size;
    } else {
      axes.push_back(axis);
    }
  }
  if (!axes.empty()) {
    const auto longest = std::ranges::max_element(axes, {}, &Axis::size);
    rows.rows = longest->size;
    rows.memory_stride = longest->memory_stride;
    rows.index_stride = longest->index_stride;
    axes.erase(longest);
  }
  visit_axes(axes, 0, rows, visit);
}

std::uint64_t fill_word(std::uint64_t element_bits, const TargetTensor& tensor) {
  if (element_bits == 0) return 0;
  const unsigned bits = dtype_bits(tensor.dtype);
  if (64 % bits != 0) {
    throw Error(Errc::kInternal, fmt::format("tensor '{}': elements of {} bits can be filled with "
                                             "zeros only",
                                             tensor.name, bits));
  }
  std::uint64_t word = element_bits;
  for (unsigned width = bits; width < 64; width *= 2) word |= word << width;
  return word;
}

}  // namespace preload
