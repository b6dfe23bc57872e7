// SPDX-License-Identifier: Apache-2.0
#include "comm/job_progress.hpp"

#include <algorithm>

namespace preload {

double RankProgress::share() const noexcept {
  if (total_bytes == 0) return 0;
  return std::min(1.0, static_cast<double>(bytes) / static_cast<double>(total_bytes));
}

std::optional<RankProgress> slowest(std::span<const RankProgress> ranks) noexcept {
  std::optional<RankProgress> found;
  for (const RankProgress& rank : ranks) {
    if (rank.total_bytes == 0 || rank.bytes >= rank.total_bytes) continue;
    if (!found || rank.share() < found->share()) found = rank;
  }
  return found;
}

}  // namespace preload
