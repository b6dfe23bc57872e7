// SPDX-License-Identifier: Apache-2.0
#include "plan/spread_choice.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.hpp"

namespace preload {

namespace {

constexpr std::array<std::pair<Spread, std::string_view>, 3> kNames{
    {{Spread::kAuto, "auto"}, {Spread::kAlways, "always"}, {Spread::kNever, "never"}}};

// Handing on what is smaller costs more than reading it again.
constexpr std::uint64_t kLeastSpreadBytes = 256 * kKiB;
// Spreading makes ranks wait for each other: a gain within the estimate's error is none.
constexpr double kWorthwhile = 0.95;

}  // namespace

std::vector<RankReads> reads_of(std::span<const ReadPlan> plans) {
  return {plans.begin(), plans.end()};
}

std::string_view spread_name(Spread spread) noexcept {
  return std::ranges::find(kNames, spread, &std::pair<Spread, std::string_view>::first)->second;
}

std::optional<Spread> spread_from_name(std::string_view name) noexcept {
  const auto* const found =
      std::ranges::find(kNames, name, &std::pair<Spread, std::string_view>::second);
  return found == kNames.end() ? std::nullopt : std::optional(found->first);
}

LinkRates usual_rates(bool device, bool hot) noexcept {
  LinkRates rates;
  // Two GPUs of one host, fed from the page cache at once, get 76 GB/s together; copying within
  // host memory is the same work as reading from the page cache.
  if (hot) rates.file = device ? 76e9 : 20e9;
  if (!device) {
    rates.host_to_device = 0;
    rates.peer = 20e9;
  }
  return rates;
}

LinkRates rates_apart(LinkRates rates, int nodes, bool shared_files) noexcept {
  if (shared_files) rates.file /= nodes;
  return rates;
}

LinkRates rates_together(LinkRates rates, const SpreadGroup& group, bool shared_files,
                         double network) noexcept {
  if (!shared_files) rates.file *= group.nodes;
  rates.peer = std::min(rates.peer, network);
  if (rates.host_to_device == 0) rates.peer *= group.count;  // of all host memory
  return rates;
}

double estimate_seconds(std::span<const RankReads> node, const LinkRates& rates) noexcept {
  double read = 0;
  double sent = 0;
  double slowest = 0;
  for (const RankReads& rank : node) {
    const auto read_bytes = static_cast<double>(rank.read_bytes);
    const auto sent_bytes = static_cast<double>(rank.sent_bytes);
    read += read_bytes + static_cast<double>(rank.gap_bytes);
    sent += sent_bytes;
    if (rates.host_to_device == 0) continue;
    slowest = std::max({slowest, read_bytes / rates.host_to_device, sent_bytes / rates.peer});
  }
  const double files = read / rates.file;
  if (rates.host_to_device == 0) return files + sent / rates.peer;  // one memory serves both
  return std::max(files, slowest);
}

std::uint64_t least_spread_bytes(Spread spread) noexcept {
  return spread == Spread::kAlways ? 0 : kLeastSpreadBytes;
}

bool spreads(Spread spread, std::span<const RankReads> apart, std::span<const RankReads> together,
             const LinkRates& rates) noexcept {
  if (apart.size() == 1 || spread == Spread::kNever) return false;
  if (spread == Spread::kAlways) return true;
  return estimate_seconds(together, rates) < kWorthwhile * estimate_seconds(apart, rates);
}

std::vector<ReadPlan> plan_node_reads(std::vector<std::vector<HeldRows>> members, Spread spread,
                                      const LinkRates& rates) {
  if (members.size() > 1 && spread == Spread::kAlways) {
    return plan_spread_reads(std::move(members), least_spread_bytes(spread));
  }
  std::vector<ReadPlan> apart;
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    apart.push_back(plan_own_reads(members[i], i));
  }
  if (members.size() == 1 || spread == Spread::kNever) return apart;
  std::vector<ReadPlan> together =
      plan_spread_reads(std::move(members), least_spread_bytes(spread));
  return spreads(spread, reads_of(apart), reads_of(together), rates) ? std::move(together)
                                                                     : std::move(apart);
}

}  // namespace preload
