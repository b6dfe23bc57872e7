// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/read_plan.hpp"
#include "plan/shards.hpp"

namespace preload {

// What one rank of a node needs of a stored tensor, in elements of its two axes.
struct NodeNeed {
  std::uint32_t rank = 0;  // by its number on the node
  Interval rows;
  Interval columns;
};

// Adds up what the ranks of a node read and hand on when plan_spread_reads shares the work out,
// tensor by tensor, without a plan: right for the node, and for each rank but for the small blocks
// that go to whoever has least to read.
class NodeReadSums {
 public:
  NodeReadSums(std::size_t ranks, std::uint64_t least_bytes)
      : least_bytes_(least_bytes), sums_(ranks) {}

  // What the ranks need of a stored tensor of so many columns, of which each block is read in so
  // many pieces.
  void add(std::vector<NodeNeed> needs, std::int64_t columns, std::int64_t pieces,
           unsigned element_bits);
  void add(const std::vector<RankReads>& more, std::uint64_t times);
  const std::vector<RankReads>& sums() const noexcept { return sums_; }

 private:
  void add_block(std::span<const NodeNeed> needs, Interval block, std::int64_t columns,
                 std::int64_t pieces, unsigned element_bits);
  void add_read(std::uint32_t rank, std::int64_t rows, std::int64_t taken, std::int64_t columns,
                unsigned element_bits);

  std::uint64_t least_bytes_;
  std::vector<RankReads> sums_;
};

}  // namespace preload
