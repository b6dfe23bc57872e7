// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/host_limits.hpp"
#include "doctor/check.hpp"

namespace preload::doctor {

// What the machine gives this process.
struct MachineFacts {
  static constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

  std::uint64_t descriptors = 0, most_descriptors = 0;  // ulimit -n: soft, hard
  std::uint64_t locked_bytes = 0;                       // ulimit -l
  std::uint64_t address_bytes = 0;                      // ulimit -v
  std::uint64_t file_bytes = 0;                         // ulimit -f
  int cpus = 0, online_cpus = 0;                        // this process may use, there are
  std::optional<double> cpu_quota;                      // CPUs' worth of time of the cgroup
  HostMemory memory;
  std::optional<std::uint64_t> shm_free_bytes;  // of /dev/shm; unset: it is not there
  bool infiniband = false;
};
// `root` is "/" but for tests.
MachineFacts gather_machine_facts(const std::string& root = "/");

Check check_descriptors(const MachineFacts& facts);
Check check_limits(const MachineFacts& facts, bool gpus);
Check check_cpus(const MachineFacts& facts, int ranks_here);
// `needed_bytes`: of the weights that this node's ranks hold in host memory, where they do.
Check check_host_memory(const MachineFacts& facts, std::optional<std::uint64_t> needed_bytes);
Check check_shared_memory(const MachineFacts& facts, bool gpus);

}  // namespace preload::doctor
