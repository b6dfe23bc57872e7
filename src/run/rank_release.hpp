// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run/rank_context.hpp"

namespace preload::run {

// Collective, and the last collective there is: plans, MPI and, where handles live without it, the
// CUDA context go. What is exported lives on by itself. Roles that the rank holds nothing of have
// done their part and go too.
void release_all(RankContext& rank);

}  // namespace preload::run
