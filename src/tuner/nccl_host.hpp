// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "tuner/nccl_abi.hpp"

// The process and the NCCL that loaded the plugin.
namespace preload::tuner {

// NCCL's log. Warnings are written where NCCL_DEBUG is WARN or more, the others with INFO.
class NcclLog {
 public:
  explicit NcclLog(nccl::Logger log) : log_(log) {}

  void warn(const std::string& text) const;
  void info(const std::string& text) const;

 private:
  nccl::Logger log_;
};

// No version of the interface says which NCCL it is: it is asked of the library that NCCL's log
// function lies in. Nothing when that library does not tell.
std::optional<int> nccl_version_behind(nccl::Logger log);

// Of this thread's current device, which is the communicator's while NCCL forms it. Nothing without
// a CUDA driver in this process.
std::optional<std::string> current_gpu_name();

}  // namespace preload::tuner
