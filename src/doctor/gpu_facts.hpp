// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "memory/nvml.hpp"

namespace preload::doctor {

// What the machine says of its GPUs. The driver's libraries are opened late: none need be there.
struct GpuFacts {
  bool device_files = false;         // /dev/nvidiactl: the kernel's side of the driver is there
  std::string cuda_problem;          // why CUDA cannot be used; empty when it can
  int cuda_version = 0;              // that the driver supports: 12040 is 12.4
  std::vector<std::string> visible;  // UUIDs as CUDA shows them to this process, in its order
  NvmlSystem nvml;                   // of every GPU of the machine, or of the container
};

struct DriverPaths {
  std::string cuda = "libcuda.so.1";
  std::string nvml = "libnvidia-ml.so.1";
  std::string control = "/dev/nvidiactl";
};
// No context is created on any GPU.
GpuFacts gather_gpu_facts(const DriverPaths& paths = {});

}  // namespace preload::doctor
