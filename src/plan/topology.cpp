// SPDX-License-Identifier: Apache-2.0
#include "plan/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "base/counted.hpp"
#include "base/error.hpp"

namespace preload {

RankCoords coords_of(int global, const ParallelSizes& sizes) {
  RankCoords rank;
  rank.global = global;
  rank.tp = global % sizes.tp;
  rank.pp = global / sizes.tp % sizes.pp;
  rank.dp = global / (sizes.tp * sizes.pp);
  if (sizes.expert_parallel && sizes.dp * sizes.tp > 1) rank.ep = rank.dp * sizes.tp + rank.tp;
  return rank;
}

ParallelSizes parallel_sizes(int world, std::optional<int> dp, int pp, int tp) {
  if (world < 1 || tp < 1 || pp < 1 || dp.value_or(1) < 1) {
    throw Error(Errc::kUsage,
                fmt::format("ranks and parallel sizes must be 1 or more: {}, "
                            "--data-parallel-size {}, --pipeline-parallel-size {}, "
                            "--tensor-parallel-size {}",
                            counted(world, "rank"), dp ? fmt::format("{}", *dp) : "unset", pp, tp));
  }
  const std::int64_t shard = std::int64_t{pp} * tp;
  const std::int64_t replicas = dp ? *dp : std::max<std::int64_t>(1, world / shard);
  // A product of three ints may leave even 64 bits: compare by division.
  const bool fits = replicas <= std::numeric_limits<int>::max() / shard;
  if (!fits || replicas * shard != world) {
    throw Error(
        Errc::kUsage,
        fmt::format("{} started, but --tensor-parallel-size {} x "
                    "--pipeline-parallel-size {} x --data-parallel-size {} needs {}: start that "
                    "many ranks or change the sizes",
                    counted(world, "rank", "was", "were"), tp, pp,
                    dp ? fmt::format("{}", *dp) : fmt::format("{} (unset)", replicas),
                    fits ? fmt::format("{}", replicas * shard) : "more than any launcher starts"));
  }
  return {static_cast<int>(replicas), pp, tp};
}

std::vector<RankPlace> place_ranks(const std::vector<ProcessPlace>& processes) {
  // Nodes are numbered by their lowest MPI rank.
  std::unordered_map<std::string, int> nodes;
  std::vector<int> node_of;
  node_of.reserve(processes.size());
  for (const ProcessPlace& process : processes) {
    node_of.push_back(
        nodes.try_emplace(process.host, static_cast<int>(nodes.size())).first->second);
  }
  std::vector<int> local_size(nodes.size(), 0);
  for (const int node : node_of) ++local_size[static_cast<std::size_t>(node)];

  std::vector<std::size_t> order(processes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto hint = [&](std::size_t i) {
    const int given = processes[i].local_hint;
    return given < 0 ? std::numeric_limits<int>::max() : given;
  };
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(node_of[a], hint(a)) < std::pair(node_of[b], hint(b));
  });

  std::vector<RankPlace> places(processes.size());
  std::vector<int> next_local(nodes.size(), 0);
  for (std::size_t global = 0; global < order.size(); ++global) {
    const auto node = static_cast<std::size_t>(node_of[order[global]]);
    places[order[global]] = {static_cast<int>(global), static_cast<int>(node), next_local[node]++,
                             local_size[node]};
  }
  return places;
}

std::vector<RankPlace> place_ranks(int ranks, int nodes) {
  if (nodes < 1 || nodes > ranks) {
    throw Error(Errc::kUsage, fmt::format("--nodes {}: {} can be spread over 1 to {}", nodes,
                                          counted(ranks, "rank"), counted(ranks, "node")));
  }
  std::vector<RankPlace> places;
  places.reserve(static_cast<std::size_t>(ranks));
  int global = 0;
  for (int node = 0; node < nodes; ++node) {
    const int size = ranks / nodes + (node < ranks % nodes ? 1 : 0);
    for (int local = 0; local < size; ++local) places.push_back({global++, node, local, size});
  }
  return places;
}

}  // namespace preload
