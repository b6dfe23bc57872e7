// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/expert_share.hpp"
#include "model/layout_rules.hpp"
#include "plan/shards.hpp"

namespace preload {

// One of `size` ranks that share a tensor.
struct TpShare {
  int size = 1;
  int rank = 0;
};

// A rank's part in all that ranks share.
struct RankShare {
  TpShare model;
  ExpertShare experts;

  TpShare of(Share share) const noexcept {
    if (share == Share::kExperts) return {experts.tp_size, experts.tp_rank};
    return share == Share::kSharedExpert && experts.shared_whole ? TpShare{} : model;
  }
};

// What one rank takes of a part's rows and columns. A tensor of one axis has a single column.
struct PartShard {
  AxisShard rows;
  AxisShard columns;

  std::int64_t stored_elements() const noexcept { return rows.stored.count * columns.stored.count; }
  std::int64_t elements() const noexcept { return rows.extent * columns.extent; }
};
PartShard shard_of(const LayoutPart& part, const ModelSpec& spec, const TpShare& share);

// Why a rule cannot be cut for these ranks, one line a reason, by the engine's own conditions.
std::vector<std::string> indivisible(const LayoutRule& rule, const ModelSpec& spec,
                                     const RankShare& share);

}  // namespace preload
