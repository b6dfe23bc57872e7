// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "plan/topology.hpp"

namespace preload {

// Ranks [first, first + count) that hand each other what they read: those of one node, or of a few
// whole nodes. Its members are numbered from 0.
struct SpreadGroup {
  int first = 0;
  int count = 1;
  int nodes = 1;
  std::uint32_t member(int global) const noexcept {
    return static_cast<std::uint32_t>(global - first);
  }
  friend bool operator==(const SpreadGroup&, const SpreadGroup&) = default;
};

// Whole nodes with at most so many ranks: every rank plans for all of its group, and any two of
// them may exchange messages.
inline constexpr int kMostGroupRanks = 64;

// The group of whole nodes, as many at a time as fit in their order, that has the rank `global`.
// `places` are those of all ranks, by global rank.
SpreadGroup group_of_nodes(std::span<const RankPlace> places, int global);

}  // namespace preload
