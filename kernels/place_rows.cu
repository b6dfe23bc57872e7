// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "load/float_convert.hpp"
#include "place_rows.hpp"
#include "row_walk.cuh"

namespace preload::kernels {

namespace {

constexpr int kThreads = 256;

unsigned blocks_for(std::uint64_t items) {
  constexpr std::uint64_t kMaxBlocks = 4096;
  const std::uint64_t blocks = (items + kThreads - 1) / kThreads;
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

template <class Unit>
__device__ Unit* at(const void* base, std::uint64_t offset) {
  return reinterpret_cast<Unit*>(reinterpret_cast<std::uintptr_t>(base) + offset);
}

template <class Unit>
__global__ void __launch_bounds__(kThreads) copy_kernel(RowCopy copy, std::uint64_t units) {
  for (RowWalk walk(copy.rows, units); walk.inside(); walk.next()) {
    at<Unit>(copy.target, walk.row() * copy.target_stride)[walk.item()] =
        at<const Unit>(copy.source, walk.row() * copy.source_stride)[walk.item()];
  }
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads) convert_kernel(RowCopy copy, std::uint64_t elements) {
  for (RowWalk walk(copy.rows, elements); walk.inside(); walk.next()) {
    at<typename To::Bits>(copy.target, walk.row() * copy.target_stride)[walk.item()] =
        convert_float<From, To>(at<const typename From::Bits>(
            copy.source, walk.row() * copy.source_stride)[walk.item()]);
  }
}

template <class Unit>
int launch_copy(const RowCopy& copy, std::uint64_t row_bytes, cudaStream_t stream) {
  const std::uint64_t units = row_bytes / sizeof(Unit);
  copy_kernel<Unit><<<blocks_for(copy.rows * units), kThreads, 0, stream>>>(copy, units);
  return cudaGetLastError();
}

template <class From, class To>
int launch_convert(const RowCopy& copy, std::uint64_t elements, cudaStream_t stream) {
  convert_kernel<From, To>
      <<<blocks_for(copy.rows * elements), kThreads, 0, stream>>>(copy, elements);
  return cudaGetLastError();
}

template <class From>
int launch_convert_from(const RowCopy& copy, std::uint64_t elements, Float to,
                        cudaStream_t stream) {
  switch (to) {
    case Float::kF16:
      return launch_convert<From, F16Format>(copy, elements, stream);
    case Float::kBF16:
      return launch_convert<From, BF16Format>(copy, elements, stream);
    case Float::kF32:
      return launch_convert<From, F32Format>(copy, elements, stream);
    case Float::kF64:
      return launch_convert<From, F64Format>(copy, elements, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

int copy_rows(const RowCopy& copy, std::uint64_t row_bytes, CUstream_st* stream) noexcept {
  if (copy.rows == 0 || row_bytes == 0) return cudaSuccess;
  // The widest unit that divides all of them.
  std::uint64_t bits = row_bytes | reinterpret_cast<std::uintptr_t>(copy.source) |
                       reinterpret_cast<std::uintptr_t>(copy.target);
  if (copy.rows > 1) bits |= copy.source_stride | copy.target_stride;
  if (bits % 16 == 0) return launch_copy<uint4>(copy, row_bytes, stream);
  if (bits % 8 == 0) return launch_copy<std::uint64_t>(copy, row_bytes, stream);
  if (bits % 4 == 0) return launch_copy<std::uint32_t>(copy, row_bytes, stream);
  if (bits % 2 == 0) return launch_copy<std::uint16_t>(copy, row_bytes, stream);
  return launch_copy<std::uint8_t>(copy, row_bytes, stream);
}

int convert_rows(const RowCopy& copy, std::uint64_t row_elements, Float from, Float to,
                 CUstream_st* stream) noexcept {
  if (copy.rows == 0 || row_elements == 0) return cudaSuccess;
  switch (from) {
    case Float::kF16:
      return launch_convert_from<F16Format>(copy, row_elements, to, stream);
    case Float::kBF16:
      return launch_convert_from<BF16Format>(copy, row_elements, to, stream);
    case Float::kF32:
      return launch_convert_from<F32Format>(copy, row_elements, to, stream);
    case Float::kF64:
      return launch_convert_from<F64Format>(copy, row_elements, to, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace preload::kernels
