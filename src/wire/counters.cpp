// SPDX-License-Identifier: Apache-2.0
#include "wire/counters.hpp"

#include <algorithm>
#include <numeric>

namespace preload::wire {

void AttachTimes::add(double seconds) noexcept {
  const auto bucket = std::ranges::lower_bound(kBounds, seconds);  // a bound belongs to its class
  ++counts[static_cast<std::size_t>(bucket - kBounds.begin())];
  sum_s += seconds;
}

std::uint64_t AttachTimes::count() const noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

void Counters::refused(std::string_view code) {
  const auto at = refusals.find(code);
  if (at != refusals.end()) {
    ++at->second;
  } else {
    refusals.emplace(code, 1);
  }
}

}  // namespace preload::wire
