// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "plan/source_hashes.hpp"

namespace preload {

// True when the regions, all of one tensor of `bytes`, cover each of its bytes exactly once. False
// also where deciding it would take more than a few million steps: the caller then hashes the
// tensor from its file, which costs time and never truth.
bool tiles(std::span<const SourceRegion> regions, std::uint64_t bytes);

}  // namespace preload
