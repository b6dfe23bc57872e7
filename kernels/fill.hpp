// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t

namespace preload::kernels {

// Writes the 8 bytes of `pattern` (little endian) over and over to `bytes` bytes of device memory;
// the last repetition may be cut. `target` is 8-byte aligned. Returns a cudaError_t.
int fill_pattern(void* target, std::uint64_t bytes, std::uint64_t pattern,
                 CUstream_st* stream) noexcept;

}  // namespace preload::kernels
