// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace preload {

// What NVML says of one device, reached by dlopen for the length of one call: it is optional, and a
// daemon that serves keeps none of its descriptors.
struct NvmlProcess {
  unsigned pid = 0;
  std::optional<std::uint64_t> used_bytes;  // unset where the driver does not tell
};
struct NvmlDevice {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t used_bytes = 0;
  std::vector<NvmlProcess> processes;  // compute processes; may be empty where they are hidden
};

// `uuid` as in Device::uuid. Nothing when the library is missing or does not know the device.
std::optional<NvmlDevice> query_nvml(const std::string& uuid);

// One GPU of the machine, as NVML shows it.
struct NvmlGpu {
  std::string uuid;  // lower case, as in Device::uuid
  std::string name;
  int compute_mode = 0;  // nvmlComputeMode_t: 0 shared, 2 prohibited, 3 one process
  bool mig = false;      // cut into instances
  NvmlDevice device;
};
struct NvmlSystem {
  bool mismatch = false;  // the kernel module is of another version than the library
  std::string driver_version;
  std::vector<NvmlGpu> gpus;
};
// Empty when the library is missing or does not start.
NvmlSystem query_nvml_system(const char* library = "libnvidia-ml.so.1");

// What compiled code and tuning results depend on, of the device of `uuid` and its driver. What the
// library does not tell is empty.
struct NvmlIdentity {
  std::string name;                // "NVIDIA H200"
  std::string compute_capability;  // "9.0"
  std::string driver_version;      // "580.95.05"
  std::string cuda_version;        // that the driver supports: "13.0"
};
// Nothing when the library is missing, does not start or does not know the device.
std::optional<NvmlIdentity> query_nvml_identity(const std::string& uuid,
                                                const char* library = "libnvidia-ml.so.1");

}  // namespace preload
