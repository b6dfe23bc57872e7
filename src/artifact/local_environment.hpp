// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "artifact/environment.hpp"

namespace preload::artifact {

struct IdentitySources {
  const char* nvml = "libnvidia-ml.so.1";
  const char* cuda = "libcuda.so.1";  // what NVML does not tell: containers may have no NVML
  std::string kernel = "/proc/driver/nvidia/version";
};

// "gpu", "compute_capability", "driver" and "cuda" of the device of `uuid` (as in Device::uuid; no
// context is created); of a host device "gpu": "none" and "cpu", its model. What none of the
// sources tells is kUnknown, so that nothing made under it is ever used again; one line says so.
// What is the caller's to know ("nccl" …) is the caller's to add.
Environment local_environment(const std::string& uuid, const IdentitySources& sources = {});

}  // namespace preload::artifact
