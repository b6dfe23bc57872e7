// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace preload {

// How far one rank of a job is.
struct RankProgress {
  int rank = 0;
  int node = 0;
  std::uint64_t bytes = 0;
  std::uint64_t total_bytes = 0;  // 0: not known yet
  std::uint64_t bytes_per_s = 0;  // 0: not known yet, or nothing moves
  friend bool operator==(const RankProgress&, const RankProgress&) = default;

  double share() const noexcept;  // 0 … 1
};

// The rank with the smallest share, of those that know their total and have not reached it.
std::optional<RankProgress> slowest(std::span<const RankProgress> ranks) noexcept;

}  // namespace preload
