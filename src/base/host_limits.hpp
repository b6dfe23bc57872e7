// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace preload {

// Host memory that this process can still take without being killed or swapping: the machine's,
// capped by every cgroup above it. What the kernel can reclaim (page cache) counts as free.
struct HostMemory {
  std::uint64_t available_bytes = 0;
  std::uint64_t total_bytes = 0;  // of whatever limits: the machine or the cgroup
  std::string limited_by;         // "the machine" or "cgroup /sys/fs/cgroup/…"
};

// `root` is "/" but for tests.
HostMemory host_memory(const std::string& root = "/");

}  // namespace preload
