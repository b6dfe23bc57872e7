// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run/rank_context.hpp"

namespace preload::run {

// The first phase: the directory, the lock of each role that the rank holds, and the state files
// beside them. Nothing was read or allocated before it.
void take_place(RankContext& rank);

}  // namespace preload::run
