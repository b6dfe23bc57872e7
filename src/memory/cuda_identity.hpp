// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace preload {

// What the CUDA driver's own library says of the device of `uuid` (as in Device::uuid), where NVML
// is not to be had. No context is created.
struct CudaIdentity {
  std::string name;                // "NVIDIA H200"
  std::string compute_capability;  // "9.0"
  std::string cuda_version;        // that the driver supports: "13.0"
};
// Nothing when the library is missing, does not start or does not know the device.
std::optional<CudaIdentity> query_cuda_identity(const std::string& uuid,
                                                const char* library = "libcuda.so.1");

// "580.95.05" from /proc/driver/nvidia/version; "" where it is not there.
std::string kernel_driver_version(const std::string& file = "/proc/driver/nvidia/version");

}  // namespace preload
