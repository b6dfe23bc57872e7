// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "warmup/collective_timer.hpp"
#include "warmup/engine_groups.hpp"
#include "warmup/traffic.hpp"

namespace preload::warmup {

// What is measured, in this order: what a model waits for most comes first, since the time may run
// out. The same on every rank: `groups` are this one's, `shapes` every rank's, by rank and group.
// A tuner cannot tell groups of one shape apart, so that each message is measured in one of them.
std::vector<SweepPoint> plan_sweep(const std::vector<EngineGroup>& groups,
                                   const std::vector<std::vector<tuner::Shape>>& shapes,
                                   const MessageSizes& sizes);

// What a point's candidates are, beside NCCL's own choice.
std::vector<Choice> choices_to_try(const Offer& offer);
// The same candidate with other numbers of channels, where NCCL bounds these.
std::vector<Choice> channels_to_try(const tuner::Candidate& candidate, const tuner::Shape& shape);

}  // namespace preload::warmup
