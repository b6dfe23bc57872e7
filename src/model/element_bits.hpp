// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "checkpoint/dtype.hpp"

namespace preload {

// The bit pattern of `value` in `dtype`, floats rounded to nearest even. Throws Error(kInternal)
// when an integer type cannot hold it exactly or the type has no such constant.
std::uint64_t element_bits(double value, DType dtype);

}  // namespace preload
