// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "model/copy_program.hpp"

namespace preload {

// Elements from the first to the last that a strided shape reaches; 0 when it has none.
std::int64_t extent_elements(const Dims& shape, const Dims& strides) noexcept;
// The same in bytes: what a tensor takes in its slab.
std::uint64_t extent_bytes(const TargetTensor& tensor) noexcept;
// Bytes of `elements` elements; sub-byte types are rounded up.
std::uint64_t element_bytes(std::int64_t elements, DType dtype) noexcept;

}  // namespace preload
