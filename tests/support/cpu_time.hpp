// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

namespace preload::test {

// Seconds of CPU that this thread has had: what a busy machine does not stretch.
inline double cpu_seconds() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace preload::test
