// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t

namespace preload::kernels {

// `rows` rows of `row_bytes` in device memory, `memory_stride` apart; in the tensor they begin at
// byte `offset_bytes` and lie `index_stride` apart. Any alignment of all of them.
struct HashRegion {
  const void* data = nullptr;
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint64_t memory_stride = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t index_stride = 0;
};

// Adds the region's contribution to the 128-bit hash at `sum` (device memory: low word, high word;
// 8-byte aligned), after what `stream` holds. Kernels on several streams may add to one sum. Reads
// whole aligned 8-byte words that hold at least one byte of the region. Returns a cudaError_t.
int hash_rows(const HashRegion& region, std::uint64_t* sum, CUstream_st* stream) noexcept;

}  // namespace preload::kernels
