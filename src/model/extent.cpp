// SPDX-License-Identifier: Apache-2.0
#include "model/extent.hpp"

namespace preload {

std::int64_t extent_elements(const Dims& shape, const Dims& strides) noexcept {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) return 0;
    last += (shape[i] - 1) * strides[i];
  }
  return last + 1;
}

std::uint64_t element_bytes(std::int64_t elements, DType dtype) noexcept {
  return (static_cast<std::uint64_t>(elements) * dtype_bits(dtype) + 7) / 8;
}

std::uint64_t extent_bytes(const TargetTensor& tensor) noexcept {
  return element_bytes(extent_elements(tensor.shape, tensor.strides), tensor.dtype);
}

}  // namespace preload
