// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace preload::wire {

// A read that takes longer than it should and has not ended.
struct StalledRead {
  std::string file;  // path
  std::uint64_t offset = 0, bytes = 0;
  double seconds = 0;  // so far
  friend bool operator==(const StalledRead&, const StalledRead&) = default;
};

// How far a daemon is on its way to READY.
struct Progress {
  std::uint64_t bytes = 0, total_bytes = 0;
  std::optional<std::uint64_t> bytes_per_s;  // over the last seconds; unset until it is known
  std::optional<double> seconds_left;        // unset until it is known, and while nothing moves
  std::optional<int> slowest_rank;           // of a job of several, by share of its own total
  std::optional<StalledRead> stalled;        // the one that has taken longest
  std::string phase;  // what it does once all is loaded, such as "warm-up"; empty before
  friend bool operator==(const Progress&, const Progress&) = default;

  double share() const noexcept;  // 0 … 1; 0 without a total
};

// "12.00 GiB of 40.00 GiB (30 %), 1.21 GiB/s"; without what is not known.
std::string describe(std::uint64_t bytes, std::uint64_t total_bytes,
                     std::optional<std::uint64_t> bytes_per_s);
std::string describe_time_left(double seconds);  // "12 s left", "31 min left"
// The phase; or both, and the slowest rank. The stalled read is left to the next.
std::string describe(const Progress& progress);
// "the read of 4.00 MiB at offset 4096 of '/m/a.safetensors' has not ended after 34 s"
std::string describe(const StalledRead& read);

}  // namespace preload::wire
