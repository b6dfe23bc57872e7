// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "tuner/tuning_table.hpp"
#include "warmup/sweep_result.hpp"

namespace preload::warmup {

// NCCL's collective behind an operation that it lets a tuner choose for.
std::optional<tuner::Collective> collective_of(Operation operation) noexcept;

// What the sweep found, in the form that NCCL's tuner obeys. A choice holds up to the next
// measured size that agrees on it, up to the middle towards one that chose something else, and for
// sizes alike (see alike_up_to) where NCCL's own choice follows; between measured sizes that lie
// far apart, up to twice and from half of them. `shapes`: of every group that was formed.
tuner::TuningTable make_table(const SweepResult& result, int nccl_version, tuner::Topology topology,
                              std::vector<tuner::Shape> shapes);

}  // namespace preload::warmup
