// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "plan/read_plan.hpp"
#include "plan/served_rows.hpp"

// What the planners of a node's reads share; private to plan/.
namespace preload {

class ReadPlanBuilder {
 public:
  explicit ReadPlanBuilder(std::size_t ranks) : plans_(ranks) {}
  void add(std::uint32_t reader, const FileRows& rows, std::span<const Delivery> deliveries);
  std::uint64_t read_bytes(std::uint32_t rank) const noexcept { return plans_[rank].read_bytes; }
  std::vector<ReadPlan> take();

 private:
  std::vector<ReadPlan> plans_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> pairs_;  // giver, receiver
};

}  // namespace preload
