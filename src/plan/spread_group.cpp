// SPDX-License-Identifier: Apache-2.0
#include "plan/spread_group.hpp"

namespace preload {

SpreadGroup group_of_nodes(std::span<const RankPlace> places, int global) {
  const int ranks = static_cast<int>(places.size());
  SpreadGroup group;
  for (int first = 0;; first = group.first + group.count) {
    group = {first, 0, 0};
    while (group.first + group.count < ranks) {
      const int node = places[static_cast<std::size_t>(group.first + group.count)].local_size;
      if (group.nodes > 0 && group.count + node > kMostGroupRanks) break;
      group.count += node;
      ++group.nodes;
    }
    if (global < group.first + group.count) return group;
  }
}

}  // namespace preload
