// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace preload {

struct ParallelSizes {
  int dp = 1;
  int pp = 1;
  int tp = 1;
  // Experts are spread over the dp * tp ranks of a stage; without it all of these share each.
  bool expert_parallel = false;
  std::vector<int> stage_layers = {};  // layers of each stage; empty: as even as can be
  int world() const noexcept { return dp * pp * tp; }
  friend bool operator==(const ParallelSizes&, const ParallelSizes&) = default;
};

// Place of one rank: global = (dp * pp_size + pp) * tp_size + tp.
struct RankCoords {
  int global = 0;
  int dp = 0;
  int pp = 0;
  int tp = 0;
  std::optional<int> ep;  // unset when expert parallelism is off
  friend bool operator==(const RankCoords&, const RankCoords&) = default;
};

// Expert parallelism is off where there is a single rank to a stage.
RankCoords coords_of(int global, const ParallelSizes& sizes);
// Throws Error(kUsage) naming the numbers and the flags; an unset dp is world / (pp * tp).
ParallelSizes parallel_sizes(int world, std::optional<int> dp, int pp, int tp);

// Who the launcher started, one entry per MPI rank.
struct ProcessPlace {
  std::string host;     // node identity: boot id and host name
  int local_hint = -1;  // launcher's local rank, -1 when it gives none
};
struct RankPlace {
  int global = 0;  // our rank: nodes hold contiguous blocks
  int node = 0;
  int local = 0;
  int local_size = 1;
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};
// By (node, local rank), nodes in order of their lowest MPI rank, whatever the distribution.
std::vector<RankPlace> place_ranks(const std::vector<ProcessPlace>& processes);
// The same for a plan without processes: `ranks` over `nodes`, as even as can be.
std::vector<RankPlace> place_ranks(int ranks, int nodes);

}  // namespace preload
