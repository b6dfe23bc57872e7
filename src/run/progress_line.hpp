// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>

namespace preload::run {

// Tells a user how far something is: on a terminal by one line that is redrawn, elsewhere by a log
// line every 10 s.
class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ProgressLine(int fd);  // where the log goes; stays the caller's
  ~ProgressLine() { end(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::string_view text, Clock::time_point now);
  void end();  // leaves an empty line for what comes next

 private:
  void put(std::string_view text) const;

  const int fd_;
  const bool terminal_;
  bool shown_ = false;
  Clock::time_point next_log_{};
};

}  // namespace preload::run
