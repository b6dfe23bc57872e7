// SPDX-License-Identifier: Apache-2.0
#include "warmup/decision.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace preload::warmup {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

bool is_time(double seconds) noexcept { return std::isfinite(seconds) && seconds > 0; }

bool gains(double seconds, double over) noexcept {
  return is_time(seconds) && is_time(over) && over >= (1 + kMargin) * seconds;
}

// The slowest rank of one round.
double slowest_in(const RankTimes& times, std::size_t round) noexcept {
  double slowest = 0;
  for (const std::vector<double>& rounds : times) {
    slowest = std::max(slowest, round < rounds.size() ? rounds[round] : kNever);
  }
  return slowest;
}

}  // namespace

double median(std::vector<double> values) {
  const std::size_t half = values.size() / 2;
  std::ranges::sort(values);
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double slowest_median(const RankTimes& times) {
  if (times.empty()) return kNever;
  double slowest = 0;
  for (const std::vector<double>& rounds : times) {
    if (rounds.empty() || !std::ranges::all_of(rounds, is_time)) return kNever;
    slowest = std::max(slowest, median(rounds));
  }
  return slowest;
}

std::size_t choose(const std::vector<double>& seconds) noexcept {
  std::size_t best = 0;
  for (std::size_t i = 1; i < seconds.size(); ++i) {
    if (!gains(seconds[i], seconds[0])) continue;
    if (best == 0 || seconds[i] < seconds[best]) best = i;
  }
  return best;
}

Confirmation confirm(const RankTimes& default_times, const RankTimes& times) {
  Confirmation result;
  result.default_seconds = slowest_median(default_times);
  result.seconds = slowest_median(times);
  if (!gains(result.seconds, result.default_seconds)) return result;
  const std::size_t rounds = times.front().size();
  std::size_t faster = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    if (slowest_in(times, round) < slowest_in(default_times, round)) ++faster;
  }
  result.holds = 2 * faster > rounds;
  return result;
}

}  // namespace preload::warmup
