// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace preload::run {

using CpuSet = std::set<int>;

// "0-3,8" as the kernel writes it; nothing when malformed.
std::optional<CpuSet> parse_cpu_list(std::string_view text);

// CPUs of the NUMA node that a device hangs on ("gpu-…"; PCI address from the driver's /proc
// files), else of the node that this thread runs on; all online CPUs when the machine does not say.
// `root` is "/" but for tests.
CpuSet node_cpus(const std::string& device, const std::string& root = "/");

// Launchers bind a rank to a core or two; a reader with a thread per core starves there. While this
// lives, the calling thread and the threads it starts may use the device's whole NUMA node, as far
// as the cgroup allows.
class CpuBinding {
 public:
  explicit CpuBinding(const std::string& device);
  // The nodes of all of them; `purpose`, for the account: "loading".
  CpuBinding(const std::vector<std::string>& devices, std::string_view purpose);
  ~CpuBinding();
  CpuBinding(const CpuBinding&) = delete;
  CpuBinding& operator=(const CpuBinding&) = delete;

  const std::string& account() const noexcept { return account_; }  // what was done, for the log

 private:
  CpuSet before_;
  bool widened_ = false;
  std::string account_;
};

}  // namespace preload::run
