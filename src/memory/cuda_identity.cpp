// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_identity.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <sstream>

#include "memory/device.hpp"

namespace preload {
namespace {

// Of cuda.h, of which nothing else is used here.
constexpr int kMajor = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kMinor = 76;

// The library's functions by name; true when one is there and succeeds.
class Cuda {
 public:
  // Never closed: the driver has threads and exit handlers of its own.
  explicit Cuda(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {}
  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    if (library_ == nullptr) return false;
    auto* function = reinterpret_cast<int (*)(Arguments...)>(dlsym(library_, name));
    return function != nullptr && function(arguments...) == 0;
  }

 private:
  void* library_;
};

std::string text_of(const Cuda& cuda, int device) {
  std::array<char, 128> name{};
  const bool known =
      cuda.call("cuDeviceGetName", name.data(), static_cast<int>(name.size()) - 1, device);
  return known ? name.data() : "";
}

std::string capability_of(const Cuda& cuda, int device) {
  int major = 0;
  int minor = 0;
  const bool known = cuda.call("cuDeviceGetAttribute", &major, kMajor, device) &&
                     cuda.call("cuDeviceGetAttribute", &minor, kMinor, device);
  return known ? fmt::format("{}.{}", major, minor) : "";
}

std::string version_of(const Cuda& cuda) {
  int version = 0;
  if (!cuda.call("cuDriverGetVersion", &version)) return "";
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

std::optional<CudaIdentity> query_cuda_identity(const std::string& uuid, const char* library) {
  const Cuda cuda(library);
  int count = 0;
  if (!cuda.call("cuInit", 0U) || !cuda.call("cuDeviceGetCount", &count)) return std::nullopt;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    int device = 0;
    std::array<unsigned char, 16> bytes{};
    if (!cuda.call("cuDeviceGet", &device, ordinal) ||
        !cuda.call("cuDeviceGetUuid_v2", bytes.data(), device)) {
      continue;
    }
    if (uuid != format_uuid("gpu", bytes) && uuid != format_uuid("mig", bytes)) continue;
    return CudaIdentity{text_of(cuda, device), capability_of(cuda, device), version_of(cuda)};
  }
  return std::nullopt;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue …": the first word of digits and
// dots that has both.
std::string kernel_driver_version(const std::string& file) {
  std::ifstream input(file);
  std::string line;
  std::getline(input, line);
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const bool numbers =
        std::ranges::all_of(word, [](unsigned char c) { return std::isdigit(c) != 0 || c == '.'; });
    if (numbers && word.find('.') != word.npos) return word;
  }
  return {};
}

}  // namespace preload
