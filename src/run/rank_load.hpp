// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run/rank_context.hpp"

namespace preload::run {

// Collective: plans every role, adopts what the keeper or a replaced daemon has of it, allocates
// and loads the rest. Afterwards each role that the rank holds has its memory and, in its
// residency, the handles to it; its plan stays until release_all().
void load_roles(RankContext& rank);

}  // namespace preload::run
