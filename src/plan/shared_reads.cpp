// SPDX-License-Identifier: Apache-2.0
#include "plan/shared_reads.hpp"

#include <algorithm>
#include <span>

namespace preload {

namespace {

bool is_shared(const ReadPlan& plan, const ReadBlock& block) noexcept {
  return std::ranges::any_of(plan.deliveries_of(block),
                             [&](const Delivery& delivery) { return delivery.owner != plan.self; });
}

template <class Wanted>
void add_block(ReadPlan& to, const ReadPlan& from, ReadBlock block, const Wanted& wanted) {
  const auto first = static_cast<std::uint32_t>(to.deliveries.size());
  for (const Delivery& delivery : from.deliveries_of(block)) {
    if (wanted(delivery)) to.deliveries.push_back(delivery);
  }
  block.first = first;
  block.count = static_cast<std::uint32_t>(to.deliveries.size()) - first;
  to.blocks.push_back(block);
  to.read_bytes += block.bytes();
}

}  // namespace

ReadParts split_reads(const ReadPlan& plan) {
  ReadParts parts;
  parts.own.self = parts.shared.self = plan.self;
  for (const ReadBlock& block : plan.blocks) {
    add_block(is_shared(plan, block) ? parts.shared : parts.own, plan, block,
              [](const Delivery&) { return true; });
  }
  return parts;
}

std::vector<ReadPlan> plan_incoming(const std::vector<ReadPlan>& members, std::uint32_t self) {
  std::vector<ReadPlan> incoming;
  for (const std::uint32_t giver : members[self].givers) {
    const ReadPlan& plan = members[giver];
    ReadPlan& in = incoming.emplace_back();
    in.self = giver;
    for (const ReadBlock& block : plan.blocks) {
      if (!is_shared(plan, block)) continue;
      add_block(in, plan, block, [&](const Delivery& delivery) { return delivery.owner == self; });
    }
  }
  return incoming;
}

}  // namespace preload
