// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "run/rank_context.hpp"

namespace preload::run {

// What one rank of a job with --replace finds in its place: a rank of the job that is replaced.
struct Replaced {
  std::string job;
  int rank = 0, world = 1;  // of that job
  int local_size = 1;       // its ranks on this node, when it was started
  int node = 0;             // this one, by the new job's count
  std::vector<int> alive;   // its ranks on this node that serve now
  friend bool operator==(const Replaced&, const Replaced&) = default;
};

// Why `world` ranks that find this would tear a job apart: some of its ranks would be replaced and
// the others go on alone, with nobody to watch over them. Nothing when they would not.
std::optional<std::string> torn_apart(std::span<const Replaced> found, int world);

// Collective, before anything is loaded. Throws Error(kUsage) on every rank alike.
void check_replaced(RankContext& rank);

}  // namespace preload::run
