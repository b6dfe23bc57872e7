// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <vector>

namespace preload::hook {

// Every living process below `root` by its parents, as /proc shows it at this moment; what has
// ended and waits for its parent is not among them.
std::vector<pid_t> descendants(pid_t root);

void signal_all(const std::vector<pid_t>& processes, int signal) noexcept;

}  // namespace preload::hook
