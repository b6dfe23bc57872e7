// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "checkpoint/dtype.hpp"

namespace preload {

// Rows of wide floats in host memory, from one pitch to another. Any alignment.
struct RowConversion {
  const std::byte* source = nullptr;
  std::uint64_t source_stride = 0;
  std::byte* target = nullptr;
  std::uint64_t target_stride = 0;
  std::uint64_t rows = 1;
  std::uint64_t row_elements = 0;
};

// Rounds to nearest even; a NaN stays a NaN; the same bits as on the GPU. Throws Error(kInternal)
// for types that are no wide floats.
void convert_rows(const RowConversion& rows, DType from, DType to);

}  // namespace preload
