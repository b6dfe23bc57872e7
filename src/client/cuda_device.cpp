// SPDX-License-Identifier: Apache-2.0
#include "client/cuda_device.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace preload::cu {
namespace {

std::string uuid_text(const Uuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid.bytes[i]);
  }
  return text;
}

}  // namespace

std::string device_name(const Driver& driver, int ordinal) {
  Device device = 0;
  Uuid gpu;
  Uuid instance;
  driver.check(driver.device_get(&device, ordinal), fmt::format("CUDA device {}", ordinal));
  driver.check(driver.device_get_uuid(&gpu, device), "reading a GPU's UUID");
  driver.check(driver.device_get_uuid_v2(&instance, device), "reading a device's UUID");
  // The second call differs from the first only where the device is a MIG instance.
  return (gpu == instance ? "gpu-" : "mig-") + uuid_text(instance);
}

std::vector<std::string> visible_devices(const Driver& driver) {
  int count = 0;
  driver.check(driver.device_get_count(&count), "counting the CUDA devices");
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(device_name(driver, i));
  return names;
}

int find_device(const Driver& driver, std::string_view name) {
  const std::vector<std::string> names = visible_devices(driver);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  throw Error(Errc::kDevice,
              fmt::format("{} is not among the GPUs that this process sees ({}); "
                          "CUDA_VISIBLE_DEVICES is {}: add the GPU to it",
                          name, names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")),
                          visible != nullptr ? fmt::format("\"{}\"", visible) : "not set"));
}

PrimaryContext::PrimaryContext(const Driver& driver, int ordinal)
    : driver_(driver), ordinal_(ordinal) {
  driver_.check(driver_.device_get(&device_, ordinal), fmt::format("CUDA device {}", ordinal));
  driver_.check(driver_.primary_retain(&context_, device_),
                fmt::format("retaining the primary context of CUDA device {}", ordinal));
}

PrimaryContext::~PrimaryContext() { driver_.primary_release(device_); }

CurrentContext::CurrentContext(const PrimaryContext& context) : driver_(context.driver()) {
  driver_.check(driver_.ctx_push(context.get()), "making the CUDA context current");
}

CurrentContext::~CurrentContext() {
  Context popped = nullptr;
  driver_.ctx_pop(&popped);
}

}  // namespace preload::cu
