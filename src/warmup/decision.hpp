// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace preload::warmup {

// Seconds of one candidate: by rank, then by round. Rounds of several candidates are interleaved,
// so that what else happens on the machine meets all of them.
using RankTimes = std::vector<std::vector<double>>;

double median(std::vector<double> values);  // of at least one
// A collective is as slow as its slowest rank: the largest of the ranks' medians. Infinite where a
// rank has no time, or one that is none.
double slowest_median(const RankTimes& times);

// What a candidate has to gain over NCCL's own choice before it is preferred: so many more of them
// in the same time.
inline constexpr double kMargin = 0.05;

// The fastest candidate; 0, NCCL's own choice, unless another gains the margin over it.
std::size_t choose(const std::vector<double>& seconds) noexcept;

// The chosen candidate beside NCCL's own choice, measured anew: whoever wins among many may have
// been lucky.
struct Confirmation {
  double default_seconds = 0;
  double seconds = 0;
  bool holds = false;  // it gains the margin again, and is faster in most of the rounds
};
Confirmation confirm(const RankTimes& default_times, const RankTimes& times);

}  // namespace preload::warmup
