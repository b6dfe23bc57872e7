// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t

namespace preload::kernels {

enum class Float { kF16, kBF16, kF32, kF64 };

// `rows` rows in device memory, from one pitch to another. The areas do not overlap.
struct RowCopy {
  const void* source = nullptr;
  std::uint64_t source_stride = 0;
  void* target = nullptr;
  std::uint64_t target_stride = 0;
  std::uint64_t rows = 1;
};

// Copies the bytes; any row length and alignment. Returns a cudaError_t.
int copy_rows(const RowCopy& copy, std::uint64_t row_bytes, CUstream_st* stream) noexcept;

// Converts `row_elements` elements of each row, rounding to nearest even; a NaN stays a NaN.
// Addresses and strides are multiples of the element sizes. Returns a cudaError_t.
int convert_rows(const RowCopy& copy, std::uint64_t row_elements, Float from, Float to,
                 CUstream_st* stream) noexcept;

}  // namespace preload::kernels
