// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

namespace preload::run {

// The rate of a growing count of bytes over the last seconds. Waiting for the first byte (planning,
// pinning) does not count.
class RateWindow {
 public:
  using Clock = std::chrono::steady_clock;

  void add(Clock::time_point now, std::uint64_t bytes);  // a count that falls begins anew
  // Unset until there is a second of it.
  std::optional<std::uint64_t> bytes_per_s() const;

 private:
  struct Sample {
    Clock::time_point time;
    std::uint64_t bytes = 0;
  };
  std::deque<Sample> samples_;  // the first is the newest that is as old as the window, or older
};

// For what is left at that rate; unset without a total or a rate.
std::optional<double> seconds_left(std::uint64_t bytes, std::uint64_t total_bytes,
                                   std::optional<std::uint64_t> bytes_per_s) noexcept;

}  // namespace preload::run
