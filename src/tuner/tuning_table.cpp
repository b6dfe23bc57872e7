// SPDX-License-Identifier: Apache-2.0
#include "tuner/tuning_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/error.hpp"

namespace preload::tuner {
namespace {

auto place(const Entry& entry) noexcept {
  return std::tuple(entry.collective, entry.shape, entry.registered_buffers, entry.pipelined_ops);
}

// Of one table: throws with what it is about in front.
class Checker {
 public:
  Checker(const TuningTable& table, std::string_view what) : table_(table), what_(what) {}

  void table() {
    const Topology& topology = table_.topology;
    require(table_.nccl_version > 0, "the NCCL version is missing");
    require(!topology.gpus.empty() && strictly_sorted(topology.gpus),
            "topology: gpus must be names, sorted, each once");
    shape(topology.world, "topology");
    require(topology.ranks_per_node >= 1 && topology.ranks_per_node <= topology.world.ranks,
            "topology: ranks_per_node must be from 1 to the ranks");
    require(table_.margin >= 0.0 && table_.margin < 1.0, "the margin must be from 0 to below 1");
    for (const Shape& formed : table_.shapes) {
      shape(formed, "communicators");
      require(formed.ranks <= topology.world.ranks && formed.nodes <= topology.world.nodes,
              fmt::format("a communicator of {} does not fit into the topology", text_of(formed)));
    }
    for (std::size_t i = 0; i < table_.entries.size(); ++i) entry(table_.entries[i], i);
    ranges();
  }

 private:
  void require(bool good, std::string_view text) const {
    if (!good) throw Error(Errc::kUsage, fmt::format("{}: {}", what_, text));
  }

  template <class Value>
  static bool strictly_sorted(const std::vector<Value>& values) {
    return std::adjacent_find(values.begin(), values.end(), [](const Value& a, const Value& b) {
             return !(a < b);
           }) == values.end();
  }

  void shape(const Shape& shape, std::string_view where) const {
    require(shape.ranks >= 2 && shape.nodes >= 1 && shape.nodes <= shape.ranks,
            fmt::format("{}: {}: at least 2 ranks, and no more nodes than ranks", where,
                        text_of(shape)));
  }

  void entry(const Entry& entry, std::size_t index) const {
    const auto good = [&](bool yes, std::string_view text) {
      require(yes, fmt::format("entries[{}] ({}, {} to {} bytes): {}", index,
                               name(entry.collective), entry.min_bytes, entry.max_bytes, text));
    };
    good(entry.min_bytes <= entry.measured_bytes && entry.measured_bytes <= entry.max_bytes,
         fmt::format("its measured size, {} bytes, is not in its range", entry.measured_bytes));
    good(std::find(table_.shapes.begin(), table_.shapes.end(), entry.shape) != table_.shapes.end(),
         fmt::format("no communicator of {} was formed", text_of(entry.shape)));
    good(entry.pipelined_ops >= 1, "pipelined_ops must be 1 or more");
    good(!entry.offered.empty() && strictly_sorted(entry.offered),
         "offered must be candidates, sorted, each once");
    const auto timing = [&](const Timing& timing, std::string_view which) {
      good(std::binary_search(entry.offered.begin(), entry.offered.end(), timing.candidate),
           fmt::format("{}: {} is not among what was offered", which, text_of(timing.candidate)));
      good(std::isfinite(timing.microseconds) && timing.microseconds > 0.0,
           fmt::format("{}: its time must be more than 0", which));
      good(timing.channels >= 0 && timing.channels <= kMaxChannels,
           fmt::format("{}: channels must be from 0 to {}", which, kMaxChannels));
    };
    timing(entry.own, "own");
    good(entry.own.channels == 0, "own: its channels are NCCL's: 0");
    if (!entry.chosen) return;
    timing(*entry.chosen, "chosen");
    good(entry.chosen->channels == 0 ||
             channels_may_be_set(entry.chosen->candidate, entry.shape.nodes),
         "chosen: NCCL does not bound the channels of that algorithm: they must be left to it (0)");
    good(entry.gain() > 0.0 && entry.gain() >= table_.margin,
         fmt::format("chosen: its gain, {:.4f}, is below the margin", entry.gain()));
  }

  void ranges() const {
    std::vector<Entry> sorted = table_.entries;
    std::sort(sorted.begin(), sorted.end(), comes_before);
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      const Entry& before = sorted[i - 1];
      const Entry& entry = sorted[i];
      require(place(before) != place(entry) || before.max_bytes < entry.min_bytes,
              fmt::format("two entries of {} cover {} bytes, for {}", name(entry.collective),
                          entry.min_bytes, text_of(entry.shape)));
    }
  }

  const TuningTable& table_;
  const std::string_view what_;
};

}  // namespace

double Entry::gain() const noexcept {
  return chosen ? own.microseconds / chosen->microseconds - 1.0 : 0.0;
}

bool comes_before(const Entry& a, const Entry& b) noexcept {
  return std::tuple(place(a), a.min_bytes) < std::tuple(place(b), b.min_bytes);
}

std::string nccl_version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string text_of(Shape shape) {
  return fmt::format("{} ranks on {} {}", shape.ranks, shape.nodes,
                     shape.nodes == 1 ? "node" : "nodes");
}

std::string text_of(Candidate candidate) {
  return fmt::format("{}/{}", name(candidate.algorithm), name(candidate.protocol));
}

void check(const TuningTable& table, std::string_view what) { Checker(table, what).table(); }

}  // namespace preload::tuner
