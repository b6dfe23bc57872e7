// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace preload::kernels {

// Walks a thread over every grid-size-th item of `rows` rows of `items` items, without a division
// per step.
class RowWalk {
 public:
  __device__ RowWalk(std::uint64_t rows, std::uint64_t items) : rows_(rows), items_(items) {
    const std::uint64_t step = static_cast<std::uint64_t>(gridDim.x) * blockDim.x;
    const std::uint64_t first = static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    row_ = first / items;
    item_ = first % items;
    row_step_ = step / items;
    item_step_ = step % items;
  }
  __device__ bool inside() const { return row_ < rows_; }
  __device__ void next() {
    row_ += row_step_;
    item_ += item_step_;
    if (item_ >= items_) {
      item_ -= items_;
      ++row_;
    }
  }
  __device__ std::uint64_t row() const { return row_; }
  __device__ std::uint64_t item() const { return item_; }

 private:
  std::uint64_t rows_, items_;
  std::uint64_t row_, item_;
  std::uint64_t row_step_, item_step_;
};

}  // namespace preload::kernels
