// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace preload {

// One CUDA device as this process sees it. Free memory comes from NVML, so that asking creates no
// context; it is unset where NVML is absent or does not know the device.
struct Device {
  int ordinal = 0;   // CUDA ordinal in this process
  std::string uuid;  // "gpu-8-4-4-4-12" or "mig-8-4-4-4-12", lower case
  std::string name;  // "NVIDIA H200"
  std::uint64_t total_bytes = 0;
  std::optional<std::uint64_t> free_bytes;
};

// Whether this binary was built with CUDA. Without it there are no devices, and what needs one
// throws Error(kDevice) saying so.
bool built_with_cuda() noexcept;

// The devices of CUDA_VISIBLE_DEVICES, in CUDA's order; empty without CUDA, driver or GPU. No
// context is created. Throws Error(kDevice) when there is a driver and it fails.
std::vector<Device> visible_devices();
int visible_device_count();
// Why there are none, for messages: "this build has no CUDA", "libcuda.so.1 was not found", …
std::string no_devices_reason();

// Makes `ordinal` this thread's device; creates its primary context.
void set_device(int ordinal);
// Destroys the primary context with all that it owns, in every thread. Exported vmm memory stays.
void give_up_context(int ordinal);

// Memory in use on the whole device, and by this process on it, as NVML counts them; nothing where
// it does not say (MIG, containers that hide processes).
std::optional<std::uint64_t> device_used_bytes(const Device& device);
std::optional<std::uint64_t> process_used_bytes(const Device& device);

// "pid 4242 (python3) 120.00 GiB, …": the compute processes of the device, largest first; empty
// when NVML does not tell.
std::string describe_holders(const Device& device);

// The text of a UUID as the driver gives it; the label is "gpu" or "mig".
std::string format_uuid(const char* label, const std::array<unsigned char, 16>& bytes);

}  // namespace preload
