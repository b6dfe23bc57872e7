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

std::vector<ReadPlan> plan_apart(std::span<const NodeMember> members) {
  std::vector<ReadPlan> plans;
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    plans.push_back(plan_own_reads(members[i], i));
  }
  return plans;
}

}  // namespace

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

double estimate_seconds(std::span<const ReadPlan> plans, const LinkRates& rates) noexcept {
  double read = 0;
  double sent = 0;
  double slowest = 0;
  for (const ReadPlan& plan : plans) {
    const auto read_bytes = static_cast<double>(plan.read_bytes);
    const auto sent_bytes = static_cast<double>(plan.sent_bytes);
    read += read_bytes;
    sent += sent_bytes;
    if (rates.host_to_device == 0) continue;
    slowest = std::max({slowest, read_bytes / rates.host_to_device, sent_bytes / rates.peer});
  }
  const double files = read / rates.file;
  if (rates.host_to_device == 0) return files + sent / rates.peer;  // one memory serves both
  return std::max(files, slowest);
}

std::vector<ReadPlan> plan_node_reads(std::span<const NodeMember> members, Spread spread,
                                      const LinkRates& rates) {
  if (members.size() == 1 || spread == Spread::kNever) return plan_apart(members);
  if (spread == Spread::kAlways) return plan_spread_reads(members, 0);
  std::vector<ReadPlan> apart = plan_apart(members);
  std::vector<ReadPlan> together = plan_spread_reads(members, kLeastSpreadBytes);
  const bool pays =
      estimate_seconds(together, rates) < kWorthwhile * estimate_seconds(apart, rates);
  return pays ? std::move(together) : std::move(apart);
}

}  // namespace preload
