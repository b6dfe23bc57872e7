// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace preload::hook {

// A process between a rank and its hook, so that nothing of the hook outlives either: it adopts
// what the hook's processes leave behind, in whichever session they are, and ends all of it when
// the rank says so or is gone, even by SIGKILL. It is this same executable, started anew, since a
// copy of the rank would hold the rank's locks and memory.
inline constexpr std::string_view kSupervisorCommand = "supervise-hook";
inline constexpr int kControlDescriptor = 3;

// Between TERM and KILL.
inline constexpr std::chrono::milliseconds kTermGrace{3000};

// Sent on the control descriptor once nothing is left of the hook.
struct SupervisorReport {
  int wait_status = 0;  // of the hook itself
  int left_over = 0;    // its processes that were there when it had ended by itself
};

// Runs `command` by /bin/sh until it ends or the other end of the control descriptor is shut.
// Returns the supervisor's own exit status.
int supervise(const std::string& command);

}  // namespace preload::hook
