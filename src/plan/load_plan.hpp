// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/slab_layout.hpp"

namespace preload {

// `rows` rows of `row_bytes` in a file, all of one source tensor. What is contiguous is one row.
struct FileRows {
  std::uint32_t file = 0;
  std::uint64_t file_offset = 0;  // of the first row
  std::uint64_t file_stride = 0;  // bytes between rows
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint32_t source = 0;         // source tensor
  std::uint64_t source_offset = 0;  // bytes from its first byte, first row

  std::uint64_t bytes() const noexcept { return rows * row_bytes; }
  friend bool operator==(const FileRows&, const FileRows&) = default;
};

// Rows of a file and their place in a target tensor. Every strided move becomes a few of these.
struct CopyOp : FileRows {
  std::uint32_t tensor = 0;         // target tensor (program index)
  std::uint64_t target_offset = 0;  // bytes from the target tensor's first byte
  std::uint64_t target_stride = 0;  // bytes between rows in the target
  // Value conversion of the elements when from != to.
  DType from = DType::kBF16;
  DType to = DType::kBF16;
  friend bool operator==(const CopyOp&, const CopyOp&) = default;

  bool converts() const noexcept { return from != to; }
};
// Bytes that a row takes in the target.
std::uint64_t target_row_bytes(const CopyOp& op) noexcept;

// Elements that no move reaches: `fill` is written over the whole extent before the moves.
struct FillOp {
  std::uint32_t tensor = 0;
  std::uint64_t element_bits = 0;  // the value's bit pattern in the tensor's dtype
  friend bool operator==(const FillOp&, const FillOp&) = default;
};

// What one rank reads and where it puts it. Pure; the same on every rank that plans it.
struct LoadPlan {
  SlabLayout slabs;
  std::vector<FillOp> fills;
  std::vector<CopyOp> ops;  // by file and offset
  std::uint64_t read_bytes = 0;
  friend bool operator==(const LoadPlan&, const LoadPlan&) = default;
};

LoadPlan plan_load(const CopyProgram& program, const Checkpoint& checkpoint);

}  // namespace preload
