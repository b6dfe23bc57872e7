// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep_table.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "warmup/decision.hpp"

namespace preload::warmup {
namespace {

using tuner::Entry;

constexpr double kMicroseconds = 1e6;
// Sizes that lie further apart say nothing of those in the middle, where NCCL keeps its own choice.
constexpr std::uint64_t kFarthest = 4;

bool ask_the_same(const Entry& a, const Entry& b) noexcept {
  return std::tuple(a.collective, a.shape, a.registered_buffers, a.pipelined_ops) ==
         std::tuple(b.collective, b.shape, b.registered_buffers, b.pipelined_ops);
}

bool choose_the_same(const Entry& a, const Entry& b) noexcept {
  return a.chosen->candidate == b.chosen->candidate && a.chosen->channels == b.chosen->channels;
}

std::optional<Entry> entry_of(const PointResult& point) {
  const auto collective = collective_of(point.point.operation);
  if (!collective || !point.offer.own) return std::nullopt;
  Entry entry;
  entry.collective = *collective;
  entry.min_bytes = entry.max_bytes = entry.measured_bytes = point.point.bytes;
  entry.shape = point.point.shape;
  entry.registered_buffers = point.offer.registered_buffers;
  entry.pipelined_ops = point.offer.pipelined_ops;
  entry.offered = point.offer.offered;
  const double own = point.chosen ? point.default_seconds : point.measured.front().seconds;
  if (!std::isfinite(own)) return std::nullopt;
  entry.own = {*point.offer.own, 0, own * kMicroseconds};
  if (point.chosen) {
    const Choice& choice = point.measured[*point.chosen].choice;
    entry.chosen = {choice.candidate.value_or(*point.offer.own), choice.channels,
                    point.chosen_seconds * kMicroseconds};
  }
  return entry;
}

// `next` is of a larger size, or of another question.
void widen(Entry& entry, Entry* next) {
  if (!entry.chosen) return;
  entry.max_bytes = alike_up_to(entry.measured_bytes);
  if (next == nullptr || !ask_the_same(entry, *next)) return;
  const std::uint64_t last = next->measured_bytes - 1;
  if (!next->chosen) {
    entry.max_bytes = std::min(entry.max_bytes, last);
  } else if (next->measured_bytes > entry.measured_bytes * kFarthest) {
    entry.max_bytes = entry.measured_bytes * 2;
    next->min_bytes = next->measured_bytes / 2;
  } else if (choose_the_same(entry, *next)) {
    entry.max_bytes = last;
  } else {
    const double middle = std::sqrt(static_cast<double>(entry.measured_bytes) *
                                    static_cast<double>(next->measured_bytes));
    entry.max_bytes = std::clamp(static_cast<std::uint64_t>(middle), entry.measured_bytes, last);
    next->min_bytes = entry.max_bytes + 1;
  }
}

}  // namespace

std::optional<tuner::Collective> collective_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::kAllReduce:
      return tuner::Collective::kAllReduce;
    case Operation::kAllGather:
      return tuner::Collective::kAllGather;
    case Operation::kReduceScatter:
      return tuner::Collective::kReduceScatter;
    case Operation::kBroadcast:
      return tuner::Collective::kBroadcast;
    case Operation::kReduce:
      return tuner::Collective::kReduce;
    case Operation::kAllToAll:
    case Operation::kSendReceive:
      break;
  }
  return std::nullopt;
}

tuner::TuningTable make_table(const SweepResult& result, int nccl_version, tuner::Topology topology,
                              std::vector<tuner::Shape> shapes) {
  tuner::TuningTable table;
  table.nccl_version = nccl_version;
  table.topology = std::move(topology);
  table.margin = kMargin;
  std::ranges::sort(shapes);
  const auto repeated = std::ranges::unique(shapes);
  shapes.erase(repeated.begin(), repeated.end());
  table.shapes = std::move(shapes);
  for (const PointResult& point : result.points) {
    if (const auto entry = entry_of(point)) table.entries.push_back(*entry);
  }
  std::ranges::sort(table.entries, tuner::comes_before);
  for (std::size_t i = 0; i < table.entries.size(); ++i) {
    widen(table.entries[i], i + 1 < table.entries.size() ? &table.entries[i + 1] : nullptr);
  }
  return table;
}

}  // namespace preload::warmup
