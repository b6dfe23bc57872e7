// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace preload::wire {

// How long attaches took to answer, from the whole request to the queued answer, in the classes
// that Prometheus calls buckets.
struct AttachTimes {
  static constexpr std::array<double, 9> kBounds = {0.0005, 0.001, 0.0025, 0.005, 0.01,
                                                    0.025,  0.05,  0.1,    0.5};  // seconds
  std::array<std::uint64_t, kBounds.size() + 1> counts{};  // by class, the last without a bound
  double sum_s = 0;

  void add(double seconds) noexcept;
  std::uint64_t count() const noexcept;
  friend bool operator==(const AttachTimes&, const AttachTimes&) = default;
};

// Bytes that came into a rank's memory one way: by a read method ("pread", "direct", …), or
// "peers" for what other ranks read and handed on.
struct LoadPath {
  std::string path;
  std::uint64_t bytes = 0;
  double seconds = 0;
  friend bool operator==(const LoadPath&, const LoadPath&) = default;
};

// What a daemon has done since it started: counts only go up.
struct Counters {
  AttachTimes attaches;
  std::map<std::string, std::uint64_t, std::less<>> refusals;  // by the error's wire code
  std::vector<LoadPath> loads;
  friend bool operator==(const Counters&, const Counters&) = default;

  void refused(std::string_view code);
};

}  // namespace preload::wire
