// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "load/read_watch.hpp"
#include "wire/progress.hpp"

namespace preload {

// Finds reads that take too long. Whoever looks regularly keeps the time, so that it is as exact as
// the looks are frequent. For one thread.
class StalledReads {
 public:
  using Clock = std::chrono::steady_clock;

  // `watch` outlives it. A read is stalled once it takes `limit`.
  explicit StalledReads(const ReadWatch& watch,
                        std::chrono::milliseconds limit = std::chrono::seconds(10));

  // The lines to log: one of reads that have taken `limit`, twice, four times as long …, one of
  // stalled reads that have ended since the last look.
  std::vector<std::string> look(Clock::time_point now);
  // As of the last look: the read that has been stalled for longest.
  std::optional<wire::StalledRead> longest() const;

 private:
  struct Seen {
    std::uint64_t turn = 0;  // 0: no read
    Clock::time_point since;
    Clock::duration report_after{};
    std::optional<wire::StalledRead> stalled;
  };
  void follow(Seen& seen, const ReadWatch::Read& read, Clock::time_point now,
              std::vector<wire::StalledRead>& due);

  const ReadWatch& watch_;
  const Clock::duration limit_;
  std::array<Seen, ReadWatch::kSlots> seen_;
};

}  // namespace preload
