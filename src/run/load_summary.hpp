// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "comm/job_progress.hpp"

namespace preload::run {

// A job's load in one view, ranks and nodes added up.
struct LoadSummary {
  struct Node {
    int node = 0;
    std::uint64_t bytes_per_s = 0;
    friend bool operator==(const Node&, const Node&) = default;
  };
  std::uint64_t bytes = 0, total_bytes = 0;
  int nodes = 0;
  std::optional<std::uint64_t> bytes_per_s;  // of all; unset while no rank knows its own
  std::uint64_t own_bytes_per_s = 0;         // of the node that looks
  std::optional<Node> slowest_node;          // of several, of those that are not done
  std::optional<RankProgress> slowest_rank;  // of several
  std::optional<double> seconds_left;        // until the last rank is done
  friend bool operator==(const LoadSummary&, const LoadSummary&) = default;
};

LoadSummary summarise(std::span<const RankProgress> ranks, int own_node);

// "loading 12.00 GiB of 40.00 GiB (30 %), 5.21 GiB/s, slowest is rank 3 (25 %), 6 s left"
std::string describe(const LoadSummary& summary);

}  // namespace preload::run
