// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "plan/read_plan.hpp"
#include "plan/spread_group.hpp"

namespace preload {

// Whether what several ranks of a node need is read once and handed on, or by each of them.
enum class Spread : std::uint8_t { kAuto, kAlways, kNever };
std::string_view spread_name(Spread spread) noexcept;  // as --spread takes it
std::optional<Spread> spread_from_name(std::string_view name) noexcept;

// Bytes a second.
struct LinkRates {
  double file = 10e9;            // of the node's files, all ranks together
  double host_to_device = 55e9;  // of one GPU; 0: weights stay in host memory
  double peer = 300e9;           // out of one GPU into others; of all host memory
};
// What to reckon with when nothing was measured: files that lie in the page cache, or do not.
LinkRates usual_rates(bool device, bool hot) noexcept;

// What nodes that read for themselves have of these rates, with files that they share or not.
LinkRates rates_apart(LinkRates rates, int nodes, bool shared_files) noexcept;
// The same for a group of nodes that read together; `network`: of one rank's part of its host's.
LinkRates rates_together(LinkRates rates, const SpreadGroup& group, bool shared_files,
                         double network) noexcept;
// Ranks of several hosts have to start NCCL before they can exchange anything.
inline constexpr double kStartBetweenNodesSeconds = 3;

// The byte counts of plans alone.
std::vector<RankReads> reads_of(std::span<const ReadPlan> plans);

// How long a node's reads take at these rates, the slowest part counted: its files, a rank's link,
// a rank's copies to others.
double estimate_seconds(std::span<const RankReads> node, const LinkRates& rates) noexcept;

// Blocks smaller than this are read by every rank that needs them, except with Spread::kAlways.
std::uint64_t least_spread_bytes(Spread spread) noexcept;
// Whether a node reads `together` rather than each of its ranks `apart`.
bool spreads(Spread spread, std::span<const RankReads> apart, std::span<const RankReads> together,
             const LinkRates& rates) noexcept;

// The node's plans: spread, or not, or as the estimate says.
std::vector<ReadPlan> plan_node_reads(std::vector<std::vector<HeldRows>> members, Spread spread,
                                      const LinkRates& rates);

}  // namespace preload
