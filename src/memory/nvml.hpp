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

}  // namespace preload
