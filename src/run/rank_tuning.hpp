// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run/rank_context.hpp"
#include "warmup/backend.hpp"

namespace preload::run {

// Collective. NCCL's collectives as the target's engine will use them: measured, or found on disk;
// where everything was adopted, found only, since a successor is to serve at once.
void tune_collectives(RankContext& rank, const warmup::Backend& backend);

}  // namespace preload::run
