// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/model_layout.hpp"
#include "plan/spread_choice.hpp"
#include "plan/spread_group.hpp"

namespace preload::cli {

// What the ranks of a job read and hand on, as `plan` reckons it: groups of the same make-up once.
class GroupReads {
 public:
  // How files and hosts are reached, beside the rates of a node.
  struct Hosts {
    double network = 0;         // bytes a second of one host; 0: nodes read for themselves
    bool shared_files = false;  // the file rate is that of a server which all nodes share
  };
  GroupReads(const ModelLayout& layout, const ParallelSizes& sizes,
             std::span<const RankPlace> places, Spread spread, const LinkRates& rates,
             const Hosts& hosts)
      : layout_(layout),
        sizes_(sizes),
        places_(places),
        spread_(spread),
        rates_(rates),
        hosts_(hosts) {}

  struct Node {
    std::vector<RankReads> ranks;
    int nodes = 1;        // that read for each other, with this one
    bool spread = false;  // something is handed on
    double seconds = 0;
    LinkRates rates;  // that the seconds are reckoned with
  };
  // Of the node that the rank is on.
  const Node& node_of(const RankPlace& place);

 private:
  using MakeUp = std::pair<int, std::vector<int>>;  // ranks before the node, share ids of a group
  std::vector<RankCoords> coords(int first, int count) const;
  Node reckon(const std::vector<RankCoords>& ranks, int nodes) const;
  // The node whose ranks are `count` of the group's from `first` on.
  Node reckon_together(const SpreadGroup& group, int first, int count) const;

  const ModelLayout& layout_;
  const ParallelSizes& sizes_;
  const std::span<const RankPlace> places_;
  const Spread spread_;
  const LinkRates rates_;
  const Hosts hosts_;
  std::map<MakeUp, Node> known_;
};

}  // namespace preload::cli
