// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep_plan.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

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
  const auto add = [&](const SweepPoint& point) {
    const bool known = std::ranges::any_of(points, [&](const SweepPoint& other) {
      return other.shape == point.shape && other.operation == point.operation &&
             other.captured == point.captured && other.bytes <= point.bytes &&
             point.bytes <= alike_up_to(other.bytes);
    });
    if (!known) points.push_back(point);
  };
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const Traffic& traffic : group_traffic(groups[group], sizes)) {
      for (const tuner::Shape& shape : shapes_of(shapes, group)) {
        // Decoding is what users wait for, and engines decode out of graphs.
        for (const Message& message : traffic.messages) {
          if (message.captured) add({group, shape, traffic.operation, message.bytes, true});
        }
        for (const Message& message : traffic.messages) {
          add({group, shape, traffic.operation, message.bytes, false});
        }
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
