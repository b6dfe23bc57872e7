// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>

#include "load/run_threads.hpp"

namespace preload {

int usable_cpus() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  // Machines with more CPUs than the fixed set holds.
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace preload
