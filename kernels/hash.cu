// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "hash.hpp"
#include "row_walk.cuh"

namespace preload::kernels {

namespace {

using Word = unsigned long long;

struct Sum {
  Word lo = 0;
  Word hi = 0;
};

__device__ __forceinline__ Word splitmix64(Word x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

__device__ __forceinline__ void add(Sum& sum, Word lo, Word hi) {
  sum.lo += lo;
  sum.hi += hi + (sum.lo < lo ? 1 : 0);
}

// sum += word * r(index) mod 2^128, r as in base/hash.hpp.
__device__ __forceinline__ void add_word(Sum& sum, Word word, Word index) {
  const Word r_hi = splitmix64(2 * index);
  const Word r_lo = splitmix64(2 * index + 1) | 1;
  add(sum, word * r_lo, __umul64hi(word, r_lo) + word * r_hi);
}

// One row in memory and in the tensor's words.
struct Row {
  std::uintptr_t begin;  // address of the first byte
  std::uintptr_t end;
  Word first_word;  // index in the tensor
  unsigned lead;    // bytes of the first word that lie before the row

  __device__ Row(const HashRegion& region, std::uint64_t row) {
    begin = reinterpret_cast<std::uintptr_t>(region.data) + row * region.memory_stride;
    end = begin + region.row_bytes;
    const Word offset = region.offset_bytes + row * region.index_stride;
    first_word = offset / 8;
    lead = static_cast<unsigned>(offset % 8);
  }
  __device__ Word words() const { return (lead + (end - begin) + 7) / 8; }

  // An aligned word of memory, or 0 when it holds no byte of the row.
  __device__ Word load(std::uintptr_t aligned) const {
    if (aligned + 8 <= begin || aligned >= end) return 0;
    return *reinterpret_cast<const Word*>(aligned);
  }
  // Word k of the row's words, bytes outside the row as zero.
  __device__ Word word(Word k) const {
    const std::uintptr_t at = begin - lead + 8 * k;
    const unsigned shift = 8 * static_cast<unsigned>(at % 8);
    const std::uintptr_t aligned = at - at % 8;
    Word value = load(aligned) >> shift;
    if (shift != 0) value |= load(aligned + 8) << (64 - shift);
    if (at < begin) value &= ~Word{0} << (8 * (begin - at));
    if (at + 8 > end) value &= ~Word{0} >> (8 * (at + 8 - end));
    return value;
  }
};

constexpr int kThreads = 256;

// Adds every thread's sum to *out. A carry out of the low word belongs to the very addition that
// wrapped it, so the two atomics add up exactly whatever their order.
__device__ void reduce(Sum sum, Word* out) {
  for (int distance = 16; distance > 0; distance /= 2) {
    const Word lo = __shfl_down_sync(~0U, sum.lo, distance);
    const Word hi = __shfl_down_sync(~0U, sum.hi, distance);
    add(sum, lo, hi);
  }
  __shared__ Sum of_warp[kThreads / 32];
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / 32; ++warp) add(sum, of_warp[warp].lo, of_warp[warp].hi);
  const Word before = atomicAdd(&out[0], sum.lo);
  const Word carry = before + sum.lo < before ? 1 : 0;
  if (sum.hi + carry != 0) atomicAdd(&out[1], sum.hi + carry);
}

__global__ void __launch_bounds__(kThreads)
    hash_rows_kernel(HashRegion region, Word words, Word* out) {
  Sum sum;
  for (RowWalk walk(region.rows, words); walk.inside(); walk.next()) {
    const Row row(region, walk.row());
    if (walk.item() < row.words())
      add_word(sum, row.word(walk.item()), row.first_word + walk.item());
  }
  reduce(sum, out);
}

// One row whose words are aligned in memory: whole words are loaded four at a time.
__global__ void __launch_bounds__(kThreads) hash_run_kernel(HashRegion region, Word* out) {
  const Row row(region, 0);
  const Word words = row.words();
  const Word* const data = reinterpret_cast<const Word*>(row.begin - row.lead);
  const Word begin = row.lead != 0 ? 1 : 0;
  const Word end = words - ((row.lead + region.row_bytes) % 8 != 0 ? 1 : 0);
  const Word step = static_cast<Word>(gridDim.x) * kThreads;
  const Word thread = static_cast<Word>(blockIdx.x) * kThreads + threadIdx.x;

  Sum sum;
  if (thread == 0 && begin == 1) add_word(sum, row.word(0), row.first_word);
  if (thread == 1 && end < words && (words > 1 || begin == 0)) {
    add_word(sum, row.word(words - 1), row.first_word + words - 1);
  }
  Word k = begin + thread;
  for (; k + 3 * step < end; k += 4 * step) {
    Word loaded[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) loaded[i] = __ldcs(data + k + i * step);
#pragma unroll
    for (int i = 0; i < 4; ++i) add_word(sum, loaded[i], row.first_word + k + i * step);
  }
  for (; k < end; k += step) add_word(sum, __ldcs(data + k), row.first_word + k);
  reduce(sum, out);
}

unsigned blocks_for(std::uint64_t items) {
  constexpr std::uint64_t kItemsPerThread = 4;
  constexpr std::uint64_t kMaxBlocks = 1056;  // fills the largest GPUs; any number is right
  const std::uint64_t blocks =
      (items + kThreads * kItemsPerThread - 1) / (kThreads * kItemsPerThread);
  return static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks);
}

}  // namespace

int hash_rows(const HashRegion& region, std::uint64_t* sum, CUstream_st* stream) noexcept {
  if (region.rows == 0 || region.row_bytes == 0) return cudaSuccess;
  HashRegion flat = region;
  if (flat.rows > 1 && flat.memory_stride == flat.row_bytes &&
      flat.index_stride == flat.row_bytes) {
    flat.row_bytes *= flat.rows;
    flat.rows = 1;
  }
  Word* const out = reinterpret_cast<Word*>(sum);
  const auto address = reinterpret_cast<std::uintptr_t>(flat.data);
  if (flat.rows == 1 && (address - flat.offset_bytes) % 8 == 0) {
    hash_run_kernel<<<blocks_for(flat.row_bytes / 8 + 2), kThreads, 0, stream>>>(flat, out);
    return cudaGetLastError();
  }
  const bool whole = (flat.row_bytes | flat.offset_bytes | flat.index_stride) % 8 == 0;
  // A row that begins inside a word may touch one word more than its length says.
  const Word words = whole ? flat.row_bytes / 8 : (flat.row_bytes + 7) / 8 + 1;
  hash_rows_kernel<<<blocks_for(flat.rows * words), kThreads, 0, stream>>>(flat, words, out);
  return cudaGetLastError();
}

}  // namespace preload::kernels
