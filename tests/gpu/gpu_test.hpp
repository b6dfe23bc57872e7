// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "memory/cuda_resources.cuh"

namespace preload::test {

// Skips with the reason where there is no GPU; fails instead when PRELOAD_REQUIRE_GPU=1.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override;

  static constexpr int kDevice = 0;
};

// A copy of `bytes` in device memory, `lead` bytes behind an aligned address; up to 8 readable
// bytes follow.
class OnDevice {
 public:
  explicit OnDevice(const std::string& bytes, std::uint64_t lead = 0);
  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_.get()) + lead_; }
  std::string read() const;

 private:
  DeviceMemory memory_;
  std::uint64_t lead_;
  std::uint64_t bytes_;
};

std::string read_device(const void* address, std::uint64_t bytes);
void write_device(void* address, const std::string& bytes);
std::string random_bytes(std::uint64_t seed, std::uint64_t count);
// Bytes in use on the device by NVML, once it has settled; fails the test where NVML is absent.
std::uint64_t settled_device_use();

// An imported vmm allocation; read-only or writable.
class Imported {
 public:
  Imported(int fd, std::uint64_t bytes, bool writable);
  ~Imported();
  Imported(const Imported&) = delete;
  Imported& operator=(const Imported&) = delete;
  void* data() const noexcept { return reinterpret_cast<void*>(address_); }

 private:
  CUdeviceptr address_ = 0;
  std::uint64_t bytes_;
};

}  // namespace preload::test
