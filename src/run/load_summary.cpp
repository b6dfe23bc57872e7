// SPDX-License-Identifier: Apache-2.0
#include "run/load_summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/bytes.hpp"
#include "run/rate_window.hpp"
#include "wire/progress.hpp"

namespace preload::run {
namespace {

// The ranks do not share their work: the last one's time is the job's. Unset when one's is.
std::optional<double> longest_left(std::span<const RankProgress> ranks) {
  double longest = 0;
  for (const RankProgress& rank : ranks) {
    const auto left = seconds_left(rank.bytes, rank.total_bytes, rank.bytes_per_s);
    if (!left) return std::nullopt;
    longest = std::max(longest, *left);
  }
  return longest;
}

struct NodeSum {
  std::uint64_t bytes_per_s = 0;
  bool done = true;
};

std::string rate(std::uint64_t bytes_per_s) { return format_bytes(bytes_per_s) + "/s"; }

}  // namespace

LoadSummary summarise(std::span<const RankProgress> ranks, int own_node) {
  LoadSummary summary;
  std::map<int, NodeSum> nodes;
  for (const RankProgress& rank : ranks) {
    summary.bytes += rank.bytes;
    summary.total_bytes += rank.total_bytes;
    if (rank.bytes_per_s != 0) {
      summary.bytes_per_s = summary.bytes_per_s.value_or(0) + rank.bytes_per_s;
    }
    NodeSum& node = nodes[rank.node];
    node.bytes_per_s += rank.bytes_per_s;
    if (rank.bytes < rank.total_bytes) node.done = false;
  }
  summary.nodes = static_cast<int>(nodes.size());
  summary.own_bytes_per_s = nodes[own_node].bytes_per_s;
  for (const auto& [number, node] : nodes) {
    if (summary.nodes == 1 || node.done) continue;
    if (!summary.slowest_node || node.bytes_per_s < summary.slowest_node->bytes_per_s) {
      summary.slowest_node = LoadSummary::Node{number, node.bytes_per_s};
    }
  }
  if (ranks.size() > 1) summary.slowest_rank = slowest(ranks);
  if (!ranks.empty()) summary.seconds_left = longest_left(ranks);
  return summary;
}

std::string describe(const LoadSummary& summary) {
  std::string text =
      "loading " + wire::describe(summary.bytes, summary.total_bytes, summary.bytes_per_s);
  if (summary.nodes > 1 && summary.bytes_per_s) {
    text += fmt::format(" on {} nodes (this one {}", summary.nodes, rate(summary.own_bytes_per_s));
    if (const auto& node = summary.slowest_node) {
      text += fmt::format(", slowest is node {} with {}", node->node, rate(node->bytes_per_s));
    }
    text += ")";
  }
  if (const auto& rank = summary.slowest_rank) {
    text += fmt::format(", slowest is rank {} ({:.0f} %)", rank->rank, 100 * rank->share());
  }
  if (summary.seconds_left) text += ", " + wire::describe_time_left(*summary.seconds_left);
  return text;
}

}  // namespace preload::run
