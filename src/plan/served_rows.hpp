// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "plan/load_plan.hpp"

namespace preload {

// Where a served tensor's hash, over its row-major bytes, comes from.
enum class ServedHash : std::uint8_t {
  kCopies,     // the copies' contributions, at the bytes' place in the target
  kAfterLoad,  // read back: not row-major, or filled with something else than zeros
  kAlias,      // its target's
};
std::vector<ServedHash> served_hash_sources(const CopyProgram& program, const LoadPlan& plan);

// A stretch of a tensor both in memory and in row-major order, as base/hash.hpp takes it.
struct ServedRows {
  std::uint64_t memory_offset = 0;  // bytes from the tensor's first byte
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint64_t memory_stride = 0;
  std::uint64_t index_offset = 0;  // bytes in row-major order
  std::uint64_t index_stride = 0;
};
// All of a tensor, whatever its strides, in as few stretches as two levels of loops allow.
void for_each_served_rows(const TargetTensor& tensor,
                          const std::function<void(const ServedRows&)>& visit);

// The 8 bytes that repeat over a tensor whose every element has the pattern `element_bits`.
std::uint64_t fill_word(std::uint64_t element_bits, const TargetTensor& tensor);

}  // namespace preload
