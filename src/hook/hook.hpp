// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.hpp"

namespace preload::hook {

// A user's command as one rank runs it.
struct Hook {
  std::string command;                   // for /bin/sh -c
  std::vector<std::string> environment;  // NAME=VALUE, all of it
  std::chrono::seconds limit{0};
};

// How it ended; then nothing of it runs any more.
struct HookEnd {
  enum class Cause { kExited, kSignalled, kTimedOut, kCancelled, kLost };
  Cause cause = Cause::kExited;
  int number = 0;     // the exit status, or the signal
  int left_over = 0;  // processes that it had left behind, which were ended
  double seconds = 0;
  bool succeeded() const noexcept { return cause == Cause::kExited && number == 0; }
};
std::string describe(const HookEnd& end);  // "ended with status 3 after 1.2 s"

// Runs it to its end, its limit or `cancel`, and then ends all of its processes. Its output goes to
// `on_line`, line by line. Throws Error when it cannot be started. `supervisor` is the executable
// that takes kSupervisorCommand.
HookEnd run(const Hook& hook, const Cancel& cancel,
            const std::function<void(std::string_view)>& on_line,
            const std::string& supervisor = "/proc/self/exe");

}  // namespace preload::hook
