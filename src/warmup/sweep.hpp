// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "comm/mpi_session.hpp"
#include "warmup/collective_timer.hpp"
#include "warmup/sweep_result.hpp"

namespace preload::warmup {

struct SweepOptions {
  double budget_s = 60;           // rank 0's counts
  std::function<double()> clock;  // seconds since the sweep began
  std::function<void(const std::string&)> progress;
};

// Measures every point, one after the other, and decides from what all ranks measured: no rank
// knows anything that the others do not, so that all return the same. Collective over `group`;
// `shapes`: of every rank's groups, by rank.
SweepResult sweep(Group& group, CollectiveTimer& timer, const std::vector<SweepPoint>& points,
                  const std::vector<std::vector<tuner::Shape>>& shapes, const SweepOptions& options,
                  const Cancel& cancel);

}  // namespace preload::warmup
