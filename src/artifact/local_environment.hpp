// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "artifact/environment.hpp"

namespace preload::artifact {

// "gpu", "compute_capability", "driver" and "cuda" as NVML tells them of the device of `uuid` (as
// in Device::uuid; no context is created); of a host device "gpu": "none" and "cpu", its model.
// What is the caller's to know ("nccl" …) is the caller's to add.
Environment local_environment(const std::string& uuid,
                              const char* nvml_library = "libnvidia-ml.so.1");

}  // namespace preload::artifact
