// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "checkpoint/dtype.hpp"

namespace preload::cli {

// Wide floats of `from` into those of `to`, rounded as the loader rounds. `out` holds as many.
void cast_floats(std::span<const std::byte> in, DType from, DType to, std::span<std::byte> out);

}  // namespace preload::cli
