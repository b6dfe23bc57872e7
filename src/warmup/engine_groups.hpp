// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/topology.hpp"

namespace preload::warmup {

// What a group of ranks is to the engine. In this order a message size is tuned for the group that
// feels it most.
enum class GroupKind : std::uint8_t { kTensor, kExpert, kData, kPipeline, kWorld };
std::string_view group_name(GroupKind kind) noexcept;  // "tp", "ep", "dp", "pp", "world"

// A communicator that the engine forms: ranks in vLLM's order, by global rank.
struct EngineGroup {
  std::vector<GroupKind> kinds;  // several where they have the same ranks: one communicator does
  std::vector<int> ranks;
  int rank = 0;  // of the one that it was asked for
  friend bool operator==(const EngineGroup&, const EngineGroup&) = default;
};
std::string describe(const EngineGroup& group);  // "tp, world"

// Those of more than one rank that `global` is in. Every rank has the same number of groups, of the
// same kinds, in the same order. `experts`: the model has some.
std::vector<EngineGroup> engine_groups(const ParallelSizes& sizes, int global, bool experts);

}  // namespace preload::warmup
