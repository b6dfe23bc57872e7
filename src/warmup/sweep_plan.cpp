// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep_plan.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

namespace preload::warmup {
namespace {

constexpr auto kChannels = std::to_array<int>({1, 2, 4, 8, 16, 32});

// Broadcasts and reductions to one rank stand outside a model's layers.
int rank_of(Operation operation) noexcept {
  return operation == Operation::kBroadcast || operation == Operation::kReduce ? 1 : 0;
}

// Every shape that a group has on some rank, each once.
std::vector<tuner::Shape> shapes_of(const std::vector<std::vector<tuner::Shape>>& shapes,
                                    std::size_t group) {
  std::set<tuner::Shape> found;
  for (const auto& of_rank : shapes) found.insert(of_rank.at(group));
  return {found.begin(), found.end()};
}

}  // namespace

std::vector<SweepPoint> plan_sweep(const std::vector<EngineGroup>& groups,
                                   const std::vector<std::vector<tuner::Shape>>& shapes,
                                   const MessageSizes& sizes) {
  std::vector<SweepPoint> points;
  using Message = std::tuple<tuner::Shape, Operation, std::uint64_t, bool>;
  std::set<Message> planned;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const Traffic& traffic : group_traffic(groups[group], sizes)) {
      for (const tuner::Shape& shape : shapes_of(shapes, group)) {
        const auto add = [&](const warmup::Message& message, bool captured) {
          const SweepPoint point{group, shape, traffic.operation, message.bytes, captured};
          if (planned.emplace(shape, traffic.operation, message.bytes, captured).second) {
            points.push_back(point);
          }
        };
        // Decoding is what users wait for, and engines decode out of graphs.
        for (const warmup::Message& message : traffic.messages) {
          if (message.captured) add(message, true);
        }
        for (const warmup::Message& message : traffic.messages) add(message, false);
      }
    }
  }
  std::ranges::stable_sort(points, {}, [](const SweepPoint& point) {
    return std::pair(rank_of(point.operation), point.group);
  });
  return points;
}

std::vector<Choice> choices_to_try(const Offer& offer) {
  std::vector<Choice> choices;
  for (const tuner::Candidate& candidate : offer.offered) {
    if (candidate != offer.own) choices.push_back({candidate, 0});
  }
  return choices;
}

std::vector<Choice> channels_to_try(const tuner::Candidate& candidate, const tuner::Shape& shape) {
  std::vector<Choice> choices;
  if (!tuner::channels_may_be_set(candidate, shape.nodes)) return choices;
  for (const int channels : kChannels) choices.push_back({candidate, channels});
  return choices;
}

}  // namespace preload::warmup
