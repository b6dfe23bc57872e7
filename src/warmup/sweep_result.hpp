// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "warmup/collective_timer.hpp"

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
  // The one of `measured` that is to be used, with what was measured when it was tried again beside
  // NCCL's own choice.
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

}  // namespace preload::warmup
