// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dims.hpp"

namespace preload {

std::int64_t element_count(const Dims& shape) noexcept {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

Dims contiguous_strides(const Dims& shape) noexcept {
  Dims strides = shape;
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    // A tensor without elements still has the strides of its other extents.
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

}  // namespace preload
