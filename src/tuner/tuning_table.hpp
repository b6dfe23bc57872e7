// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/candidate.hpp"

// What a sweep found: for each collective and size, what is faster than NCCL's own choice, and by
// how much. A value; the plugin obeys it, `preload tune` prints it.
namespace preload::tuner {

// A communicator as NCCL counts it: what it calls a node goes by NCCL_HOSTID, not by the launcher.
struct Shape {
  int ranks = 0;
  int nodes = 0;

  auto operator<=>(const Shape&) const = default;
};

// The job in which was measured. GPUs by name, not by UUID: a table holds for another machine of
// the same kind.
struct Topology {
  std::vector<std::string> gpus;  // the names that CUDA gives, sorted, each once
  Shape world;
  int ranks_per_node = 0;  // the most ranks on one node

  bool operator==(const Topology&) const = default;
};

// One candidate at the measured size.
struct Timing {
  Candidate candidate;
  int channels = 0;           // 0: as many as NCCL chooses
  double microseconds = 0.0;  // one collective

  bool operator==(const Timing&) const = default;
};

struct Entry {
  Collective collective = Collective::kAllReduce;
  // Both inclusive, as NCCL measures them in getCollInfo: of all-gather and reduce-scatter the
  // whole buffer, ranks × what one rank holds.
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;
  std::uint64_t measured_bytes = 0;  // the size, in between, that the times are of
  Shape shape;
  // As NCCL tells a tuner: true also for what is captured into a CUDA graph, whatever its buffers,
  // unless NCCL_GRAPH_REGISTER=0.
  bool registered_buffers = false;
  int pipelined_ops = 1;
  std::vector<Candidate>
      offered;                   // what NCCL offered to the sweep, sorted: others were not measured
  Timing own;                    // NCCL's own choice, with its own channels
  std::optional<Timing> chosen;  // nothing: NCCL's own choice stays

  // own's time over chosen's, less one: 0.25 is a quarter more collectives in the same time; 0
  // where NCCL's own choice stays.
  double gain() const noexcept;
  bool operator==(const Entry&) const = default;
};

// In the order of collective, shape, registered buffers, pipelined operations and bytes.
bool comes_before(const Entry& a, const Entry& b) noexcept;

struct TuningTable {
  int nccl_version = 0;  // as ncclGetVersion gives it: 22803 is 2.28.3
  Topology topology;
  double margin = 0.0;        // the gain below which NCCL's own choice was kept
  std::vector<Shape> shapes;  // of the communicators that were formed, also those without entries
  std::vector<Entry> entries;

  bool operator==(const TuningTable&) const = default;
};

std::string nccl_version_text(int version);  // "2.28.3"
std::string text_of(Shape shape);            // "8 ranks on 1 node"
std::string text_of(Candidate candidate);    // "ring/ll128"

// Throws Error(kUsage) that names the entry and what is wrong with it: ranges that are empty or
// overlap, shapes that were not formed, choices that were not offered or gain less than the margin,
// channels that NCCL would not bound, times that are none.
void check(const TuningTable& table, std::string_view what);

// The form that the plugin reads, with the entries in order, so that equal tables are equal texts.
std::string to_json(const TuningTable& table);
// Strict: unknown members, versions and names are refused. `what` names the text in errors (a
// path). Throws Error(kUsage).
TuningTable tuning_table_from_json(std::string_view text, std::string_view what);

// The rows that NCCL's example tuner reads (NVIDIA/nccl, plugins/tuner/example): those entries
// alone that choose something.
std::string to_csv(const TuningTable& table);

}  // namespace preload::tuner
