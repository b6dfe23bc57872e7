// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "base/bytes.hpp"
#include "memory/cuda_driver.cuh"
#include "memory/device.hpp"
#include "memory/nvml.hpp"

namespace preload {

namespace {

std::array<unsigned char, 16> uuid_bytes(const CUuuid& uuid) {
  std::array<unsigned char, 16> bytes{};
  std::memcpy(bytes.data(), uuid.bytes, bytes.size());
  return bytes;
}

// A MIG instance's own UUID differs from that of the GPU it is cut from.
std::string uuid_text(const CudaDriver& driver, CUdevice device) {
  CUuuid own{};
  check_cuda(driver.device_uuid(&own, device), "reading a GPU's UUID");
  CUuuid parent = own;
  if (driver.parent_device_uuid != nullptr &&
      driver.parent_device_uuid(&parent, device) != CUDA_SUCCESS) {
    parent = own;
  }
  const bool mig = std::memcmp(own.bytes, parent.bytes, sizeof own.bytes) != 0;
  return format_uuid(mig ? "mig" : "gpu", uuid_bytes(own));
}

int count_devices(const CudaDriver& driver) {
  int count = 0;
  const CUresult result = driver.device_count(&count);
  if (result == CUDA_ERROR_NO_DEVICE) return 0;
  check_cuda(result, "counting the GPUs");
  return count;
}

std::string process_name(unsigned pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

bool built_with_cuda() noexcept { return true; }

std::vector<Device> visible_devices() {
  std::string reason;
  const CudaDriver* driver = find_cuda_driver(reason);
  if (driver == nullptr) return {};
  std::vector<Device> devices;
  const int count = count_devices(*driver);
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice handle = 0;
    check_cuda(driver->device(&handle, ordinal), "opening a GPU");
    std::array<char, 128> name{};
    check_cuda(driver->device_name(name.data(), static_cast<int>(name.size()) - 1, handle),
               "reading a GPU's name");
    std::size_t total = 0;
    check_cuda(driver->device_total(&total, handle), "reading a GPU's memory size");
    Device device{ordinal, uuid_text(*driver, handle), name.data(), total, std::nullopt};
    if (const auto nvml = query_nvml(device.uuid)) device.free_bytes = nvml->free_bytes;
    devices.push_back(std::move(device));
  }
  return devices;
}

int visible_device_count() {
  std::string reason;
  const CudaDriver* driver = find_cuda_driver(reason);
  return driver == nullptr ? 0 : count_devices(*driver);
}

std::string no_devices_reason() {
  std::string reason;
  if (find_cuda_driver(reason) == nullptr) return reason;
  return "the driver shows no GPU to this process: check CUDA_VISIBLE_DEVICES and the device files";
}

void set_device(int ordinal) {
  cuda_driver();  // says why there is none
  check_cuda(cudaSetDevice(ordinal), fmt::format("selecting CUDA device {}", ordinal));
}

void give_up_context(int ordinal) {
  set_device(ordinal);
  check_cuda(cudaDeviceReset(), fmt::format("giving up the context of CUDA device {}", ordinal));
}

std::optional<std::uint64_t> device_used_bytes(const Device& device) {
  const auto nvml = query_nvml(device.uuid);
  if (!nvml) return std::nullopt;
  return nvml->used_bytes;
}

std::optional<std::uint64_t> process_used_bytes(const Device& device) {
  const auto nvml = query_nvml(device.uuid);
  if (!nvml) return std::nullopt;
  for (const NvmlProcess& process : nvml->processes) {
    if (process.pid == static_cast<unsigned>(getpid())) return process.used_bytes;
  }
  return std::nullopt;
}

std::string describe_holders(const Device& device) {
  auto nvml = query_nvml(device.uuid);
  if (!nvml) return {};
  auto& processes = nvml->processes;
  std::sort(processes.begin(), processes.end(), [](const NvmlProcess& a, const NvmlProcess& b) {
    return a.used_bytes.value_or(0) > b.used_bytes.value_or(0);
  });
  std::string text;
  for (const NvmlProcess& process : processes) {
    const std::string name = process_name(process.pid);
    text += fmt::format("{}pid {}{}{}{}", text.empty() ? "" : ", ", process.pid,
                        process.pid == static_cast<unsigned>(getpid()) ? " (this process)"
                        : name.empty()                                 ? ""
                                                                       : " (" + name + ")",
                        process.used_bytes ? " " : "",
                        process.used_bytes ? format_bytes(*process.used_bytes) : "");
  }
  return text;
}

}  // namespace preload
