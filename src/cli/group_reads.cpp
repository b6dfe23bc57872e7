// SPDX-License-Identifier: Apache-2.0
#include "cli/group_reads.hpp"

#include <algorithm>

namespace preload::cli {

const GroupReads::Node& GroupReads::node_of(const RankPlace& place) {
  const int first = place.global - place.local;
  const bool alone = hosts_.network == 0 || spread_ == Spread::kNever;
  const SpreadGroup group =
      alone ? SpreadGroup{first, place.local_size, 1} : group_of_nodes(places_, place.global);
  MakeUp make_up{first - group.first, {}};
  for (const RankCoords& rank : coords(group.first, group.count)) {
    make_up.second.push_back(layout_.share_id(rank));
  }
  const auto [at, is_new] = known_.try_emplace(std::move(make_up));
  if (!is_new) return at->second;
  at->second = reckon(coords(first, place.local_size), group.nodes);
  if (group.nodes > 1) {
    Node together = reckon_together(group, first - group.first, place.local_size);
    if (spread_ == Spread::kAlways ||
        together.seconds + kStartBetweenNodesSeconds < at->second.seconds) {
      at->second = std::move(together);
    }
  }
  return at->second;
}

std::vector<RankCoords> GroupReads::coords(int first, int count) const {
  std::vector<RankCoords> ranks;
  for (int rank = first; rank < first + count; ++rank) ranks.push_back(coords_of(rank, sizes_));
  return ranks;
}

GroupReads::Node GroupReads::reckon(const std::vector<RankCoords>& ranks, int nodes) const {
  std::vector<RankReads> apart;
  for (const RankCoords& rank : ranks) {
    apart.push_back(layout_.node_reads({&rank, 1}, 0).front());
  }
  Node node;
  node.rates = rates_apart(rates_, nodes, hosts_.shared_files);
  if (ranks.size() > 1 && spread_ != Spread::kNever) {
    node.ranks = layout_.node_reads(ranks, least_spread_bytes(spread_));
    node.spread = spreads(spread_, apart, node.ranks, node.rates);
  }
  if (!node.spread) node.ranks = std::move(apart);
  node.seconds = estimate_seconds(node.ranks, node.rates);
  return node;
}

GroupReads::Node GroupReads::reckon_together(const SpreadGroup& group, int first, int count) const {
  const std::vector<RankReads> all =
      layout_.node_reads(coords(group.first, group.count), least_spread_bytes(spread_));
  double network = 0;  // of the rank that has least of it
  for (int rank = group.first; rank < group.first + group.count; ++rank) {
    const double share = hosts_.network / places_[static_cast<std::size_t>(rank)].local_size;
    if (rank == group.first || share < network) network = share;
  }
  Node node;
  node.nodes = group.nodes;
  node.spread = true;
  node.rates = rates_together(rates_, group, hosts_.shared_files, network);
  node.seconds = estimate_seconds(all, node.rates);
  node.ranks.assign(all.begin() + first, all.begin() + first + count);
  return node;
}

}  // namespace preload::cli
