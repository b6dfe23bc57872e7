// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/cuda_driver.hpp"

namespace preload::cu {

// "gpu-8-4-4-4-12" of the UUID that the driver gives, "mig-…" for a MIG instance; lower case.
std::string device_name(const Driver& driver, int ordinal);
std::vector<std::string> visible_devices(const Driver& driver);  // by ordinal

// Ordinal in this process of the device of that name. Throws Error(kDevice) naming the visible ones
// and CUDA_VISIBLE_DEVICES when it is not among them.
int find_device(const Driver& driver, std::string_view name);

// The primary context of one device, the one that the CUDA runtime and torch use: addresses are
// shared with them. Retained for the life of the object.
class PrimaryContext {
 public:
  PrimaryContext(const Driver& driver, int ordinal);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  const Driver& driver() const noexcept { return driver_; }
  int ordinal() const noexcept { return ordinal_; }
  Context get() const noexcept { return context_; }

 private:
  const Driver& driver_;
  int ordinal_ = 0;
  Device device_ = 0;
  Context context_ = nullptr;
};

// Makes the context current on this thread for a scope.
class CurrentContext {
 public:
  explicit CurrentContext(const PrimaryContext& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
};

}  // namespace preload::cu
