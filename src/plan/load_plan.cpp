// SPDX-License-Identifier: Apache-2.0
#include "plan/load_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/error.hpp"
#include "model/element_bits.hpp"
#include "model/extent.hpp"

namespace preload {
namespace {

// One axis of a move, in elements.
struct Axis {
  std::int64_t size;
  std::int64_t source_stride;
  std::int64_t target_stride;
};

// The axes of a move that are longer than 1, in source order, neighbours that are contiguous on
// both sides merged. An empty list is a single element.
std::vector<Axis> merged_axes(const Move& move) {
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < move.sizes.size(); ++i) {
    if (move.sizes[i] != 1) {
      axes.push_back({move.sizes[i], move.source_strides[i], move.target_strides[i]});
    }
  }
  std::ranges::stable_sort(axes, std::greater{}, &Axis::source_stride);
  std::vector<Axis> merged;
  for (const Axis& axis : axes) {
    if (!merged.empty() && merged.back().source_stride == axis.size * axis.source_stride &&
        merged.back().target_stride == axis.size * axis.target_stride) {
      merged.back() = {merged.back().size * axis.size, axis.source_stride, axis.target_stride};
    } else {
      merged.push_back(axis);
    }
  }
  return merged;
}

// Bytes of `elements`; refuses what would begin or end within a byte.
std::uint64_t whole_bytes(std::int64_t elements, DType dtype, const TargetTensor& tensor) {
  const std::uint64_t bits = static_cast<std::uint64_t>(elements) * dtype_bits(dtype);
  if (bits % 8 != 0) {
    throw Error(Errc::kInternal, fmt::format("{}: a move of {} elements begins or ends in the "
                                             "middle of a byte",
                                             tensor.name, dtype_name(dtype)));
  }
  return bits / 8;
}

// Turns moves into operations, one tensor after the other.
class Planner {
 public:
  Planner(const CopyProgram& program, const Checkpoint& checkpoint)
      : program_(program), checkpoint_(checkpoint) {
    plan_.ops.reserve(program.tensors.size() * 2);
  }

  LoadPlan run() && {
    plan_.slabs = lay_out(program_);
    for (std::size_t i = 0; i < program_.tensors.size(); ++i) {
      add_tensor(static_cast<std::uint32_t>(i));
    }
    std::ranges::sort(plan_.ops, {}, [](const CopyOp& op) {
      return std::tuple(op.file, op.file_offset, op.tensor, op.target_offset);
    });
    merge_neighbours();
    for (const CopyOp& op : plan_.ops) plan_.read_bytes += op.rows * op.row_bytes;
    return std::move(plan_);
  }

 private:
  void add_tensor(std::uint32_t index) {
    const TargetTensor& tensor = program_.tensors[index];
    if (tensor.alias) return;
    std::int64_t reached = 0;
    for (const Move& move : tensor.moves) {
      reached += element_count(move.sizes);
      add_move(index, tensor, move);
    }
    if (tensor.fill && reached < element_count(tensor.shape)) {
      plan_.fills.push_back({index, element_bits(*tensor.fill, tensor.dtype)});
    }
  }

  void add_move(std::uint32_t index, const TargetTensor& tensor, const Move& move) {
    if (element_count(move.sizes) == 0) return;
    const SourceTensor& source = checkpoint_.tensors[move.source];
    const bool value = move.conversion == Conversion::kValue;
    CopyOp op;
    op.file = source.file;
    op.tensor = index;
    op.source = move.source;
    // Without a value conversion bytes stay bytes, whatever the two sides call them.
    op.from = value ? source.dtype : tensor.dtype;
    op.to = tensor.dtype;

    std::vector<Axis> axes = merged_axes(move);
    std::int64_t row_elements = 1;
    if (!axes.empty() && axes.back().source_stride == 1 && axes.back().target_stride == 1) {
      row_elements = axes.back().size;
      axes.pop_back();
    }
    op.row_bytes = whole_bytes(row_elements, source.dtype, tensor);
    whole_bytes(row_elements, tensor.dtype, tensor);
    // One of the other axes becomes the rows, what is left is counted out: of a transposed tensor
    // the one along which it is stored, so that what is read lies together, else the longest.
    if (!axes.empty()) {
      const auto rows = axes.back().source_stride == 1
                            ? std::prev(axes.end())
                            : std::ranges::max_element(axes, {}, &Axis::size);
      op.rows = static_cast<std::uint64_t>(rows->size);
      op.file_stride = whole_bytes(rows->source_stride, source.dtype, tensor);
      op.target_stride = whole_bytes(rows->target_stride, tensor.dtype, tensor);
      axes.erase(rows);
    }
    emit(op, axes, 0, move.source_offset, move.target_offset, source, tensor);
  }

  void emit(CopyOp& op, const std::vector<Axis>& axes, std::size_t depth, std::int64_t source_at,
            std::int64_t target_at, const SourceTensor& source, const TargetTensor& tensor) {
    if (depth < axes.size()) {
      const Axis& axis = axes[depth];
      for (std::int64_t i = 0; i < axis.size; ++i) {
        emit(op, axes, depth + 1, source_at + i * axis.source_stride,
             target_at + i * axis.target_stride, source, tensor);
      }
      return;
    }
    op.source_offset = whole_bytes(source_at, source.dtype, tensor);
    op.file_offset = source.offset + op.source_offset;
    op.target_offset = whole_bytes(target_at, tensor.dtype, tensor);
    plan_.ops.push_back(op);
  }

  // Single rows that continue each other in the file and in the target become one.
  void merge_neighbours() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < plan_.ops.size(); ++i) {
      const CopyOp& next = plan_.ops[i];
      if (kept > 0 && continues(plan_.ops[kept - 1], next)) {
        plan_.ops[kept - 1].row_bytes += next.row_bytes;
      } else {
        plan_.ops[kept++] = next;
      }
    }
    plan_.ops.resize(kept);
  }

  static bool continues(const CopyOp& op, const CopyOp& next) {
    return op.rows == 1 && next.rows == 1 && op.source == next.source && op.tensor == next.tensor &&
           op.from == next.from && op.to == next.to &&
           op.source_offset + op.row_bytes == next.source_offset &&
           op.target_offset + target_row_bytes(op) == next.target_offset;
  }

  const CopyProgram& program_;
  const Checkpoint& checkpoint_;
  LoadPlan plan_;
};

}  // namespace

std::uint64_t target_row_bytes(const CopyOp& op) noexcept {
  return op.row_bytes * dtype_bits(op.to) / dtype_bits(op.from);
}

LoadPlan plan_load(const CopyProgram& program, const Checkpoint& checkpoint) {
  return Planner(program, checkpoint).run();
}

}  // namespace preload
