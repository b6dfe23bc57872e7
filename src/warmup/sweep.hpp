// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "comm/mpi_session.hpp"
#include "warmup/collective_timer.hpp"
#include "warmup/decision.hpp"

namespace preload::warmup {

struct Measured {
  Choice choice;
  double seconds = 0;  // of one, see slowest_median
  friend bool operator==(const Measured&, const Measured&) = default;
};

struct PointResult {
  SweepPoint point;
  Offer offer;
  int repetitions = 1;             // without a pause, in each round
  std::vector<Measured> measured;  // NCCL's own choice first
  // Of `measured`, with what was measured when it was tried again beside NCCL's own choice.
  std::optional<std::size_t> chosen;
  double chosen_seconds = 0, default_seconds = 0;
  friend bool operator==(const PointResult&, const PointResult&) = default;
};

struct SweepResult {
  std::vector<PointResult> points;
  std::size_t planned = 0;  // more than these where the budget ran out
  double seconds = 0;       // by rank 0's clock
  friend bool operator==(const SweepResult&, const SweepResult&) = default;
};

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
