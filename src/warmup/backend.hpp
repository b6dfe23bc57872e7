// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "warmup/collective_device.hpp"

namespace preload::warmup {

// What NCCL runs on. The GPU, but for tests, which have an NCCL of their own on host memory.
struct Backend {
  bool gpu = true;
  std::string plugin;      // path of NCCL's tuner plugin
  std::string in_the_way;  // why there is none
  std::function<std::uint64_t(int ordinal)> free_bytes = free_device_bytes;
  std::function<std::unique_ptr<CollectiveDevice>(int ordinal, std::uint64_t bytes)> make_device =
      make_cuda_device;
};

// Has NCCL load our tuner plugin into this process: to be called before its first communicator, and
// before there are threads that read the environment. A plugin that the user names is left alone.
Backend gpu_backend();

}  // namespace preload::warmup
