// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run/rank_context.hpp"

namespace preload::run {

// Collective, before memory is allocated. Where what is to be loaded does not fit, on any rank,
// beside what was there before, that is let go of: first what a keeper has and was declined; then,
// if it was allowed (--drain), what the replaced daemons hold, once nobody leases any of it on any
// rank. Until all agree nothing is freed, and the replaced daemons admit clients again. Throws on
// all ranks alike: Error(kMemory) where it could never fit, or with the remedy where draining was
// not allowed, Error(kTimeout) when clients hold on.
void make_room(RankContext& rank);

}  // namespace preload::run
