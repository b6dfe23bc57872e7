// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.hpp"
#include "plan/load_plan.hpp"

namespace preload::run {

// How much of adopted memory is hashed again. What this guards against is another memory than the
// papers describe, or one that lost its contents: any tensor of it shows that. 256 MiB take a tenth
// of a second on one core and nothing on a GPU, and cover several tensors of each slab.
inline constexpr std::uint64_t kAdoptionSampleBytes = 256 * kMiB;

// Tensors to hash: of every slab its largest that fit into the slab's share of `bytes`, and at
// least its smallest. Neither aliases nor tensors without a byte.
std::vector<std::uint32_t> sample_tensors(const CopyProgram& program, const LoadPlan& plan,
                                          std::uint64_t bytes = kAdoptionSampleBytes);

}  // namespace preload::run
