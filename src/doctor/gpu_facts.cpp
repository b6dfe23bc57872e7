// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_facts.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "memory/device.hpp"

namespace preload::doctor {
namespace {

// Of the driver's ABI, which is stable: the toolkit's header is not needed.
using Uuid = std::array<unsigned char, 16>;
constexpr int kNoDevice = 100;  // CUDA_ERROR_NO_DEVICE

// Stays open: the driver has threads and exit handlers of its own.
class CudaLibrary {
 public:
  explicit CudaLibrary(const std::string& path)
      : handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  bool is_there() const noexcept { return handle_ != nullptr; }

  // 0 for success; -1 where the driver has no such function.
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    auto* function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(handle_, name));
    return function == nullptr ? -1 : function(arguments...);
  }

 private:
  void* handle_;
};

std::string uuid_of(const CudaLibrary& cuda, int device) {
  Uuid own{};
  Uuid parent{};
  if (cuda.call("cuDeviceGetUuid_v2", &own, device) != 0) return {};
  // A MIG instance's own UUID differs from that of the GPU it is cut from.
  const bool mig = cuda.call("cuDeviceGetUuid", &parent, device) == 0 && parent != own;
  return format_uuid(mig ? "mig" : "gpu", own);
}

void ask_cuda(const std::string& path, GpuFacts& facts) {
  const CudaLibrary cuda(path);
  if (!cuda.is_there()) {
    facts.cuda_problem = fmt::format("{} is not found", path);
    return;
  }
  int count = 0;
  int result = cuda.call("cuInit", 0U);
  if (result == 0) result = cuda.call("cuDeviceGetCount", &count);
  cuda.call("cuDriverGetVersion", &facts.cuda_version);
  if (result == kNoDevice) return;
  if (result != 0) {
    const char* text = nullptr;
    cuda.call("cuGetErrorString", result, &text);
    facts.cuda_problem = fmt::format("the driver does not start: {} ({})",
                                     text == nullptr ? "unknown error" : text, result);
  }
  for (int i = 0; result == 0 && i < count; ++i) {
    int device = 0;
    if (cuda.call("cuDeviceGet", &device, i) == 0) facts.visible.push_back(uuid_of(cuda, device));
  }
}

}  // namespace

GpuFacts gather_gpu_facts(const DriverPaths& paths) {
  GpuFacts facts;
  facts.device_files = ::access(paths.control.c_str(), F_OK) == 0;
  ask_cuda(paths.cuda, facts);
  facts.nvml = query_nvml_system(paths.nvml.c_str());
  return facts;
}

}  // namespace preload::doctor
