// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "model/copy_program.hpp"

namespace preload {

enum class TargetCover : std::uint8_t {
  kWhole,    // the moves reach every element once
  kPart,     // some elements are reached by none
  kOverlap,  // some element is reached twice
  kOutside,  // a move writes between the elements of a strided tensor
};

// What the moves of a tensor do to its elements. Exact; moves lie within the tensor's extent. Costs
// the number of moves squared where all of them are boxes of the tensor's axes, else its elements.
TargetCover target_cover(const TargetTensor& tensor);

}  // namespace preload
