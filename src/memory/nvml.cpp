// SPDX-License-Identifier: Apache-2.0
#include "memory/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/unique.hpp"

namespace preload {

namespace {

// The few declarations of NVML's stable ABI that are used; its header ships apart from the toolkit.
using NvmlHandle = struct nvmlDevice_st*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlProcessInfo {  // nvmlProcessInfo_v2_t, of nvmlDeviceGetComputeRunningProcesses_v3
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance, compute_instance;
};
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlMismatch = 18;  // NVML_ERROR_LIB_RM_VERSION_MISMATCH

struct LibraryTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle handle) noexcept { dlclose(handle); }
};
using Library = Unique<LibraryTraits>;

template <class Function>
Function* symbol(const Library& library, const char* name) noexcept {
  return reinterpret_cast<Function*>(dlsym(library.get(), name));
}

// nvmlInit to nvmlShutdown.
class NvmlUse {
 public:
  explicit NvmlUse(const Library& library) : shutdown_(symbol<int()>(library, "nvmlShutdown")) {
    auto* init = symbol<int()>(library, "nvmlInit_v2");
    if (init != nullptr) result_ = init();
    if (result_ != kNvmlSuccess) shutdown_ = nullptr;
  }
  NvmlUse(const NvmlUse&) = delete;
  NvmlUse& operator=(const NvmlUse&) = delete;
  ~NvmlUse() {
    if (shutdown_ != nullptr) shutdown_();
  }
  explicit operator bool() const noexcept { return shutdown_ != nullptr; }
  int result() const noexcept { return result_; }

 private:
  int (*shutdown_)();
  int result_ = -1;
};

std::vector<NvmlProcess> compute_processes(const Library& library, NvmlHandle device) {
  auto* list = symbol<int(NvmlHandle, unsigned*, NvmlProcessInfo*)>(
      library, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (list == nullptr) return {};
  std::vector<NvmlProcessInfo> infos(256);
  auto count = static_cast<unsigned>(infos.size());
  if (list(device, &count, infos.data()) != kNvmlSuccess) return {};
  std::vector<NvmlProcess> processes;
  for (unsigned i = 0; i < count && i < infos.size(); ++i) {
    NvmlProcess process{infos[i].pid, std::nullopt};
    if (infos[i].used_gpu_memory != ~0ULL) process.used_bytes = infos[i].used_gpu_memory;
    processes.push_back(process);
  }
  return processes;
}

// A text that NVML writes into a buffer, through a function of the library.
template <class... Arguments>
std::string text_of(const Library& library, const char* function, Arguments... arguments) {
  auto* write = symbol<int(Arguments..., char*, unsigned)>(library, function);
  std::array<char, 128> text{};
  if (write == nullptr ||
      write(arguments..., text.data(), static_cast<unsigned>(text.size())) != kNvmlSuccess) {
    return {};
  }
  return text.data();
}

NvmlDevice device_of(const Library& library, NvmlHandle device) {
  NvmlMemory memory{};
  auto* memory_of = symbol<int(NvmlHandle, NvmlMemory*)>(library, "nvmlDeviceGetMemoryInfo");
  if (memory_of != nullptr) memory_of(device, &memory);
  return {memory.total, memory.free, memory.used, compute_processes(library, device)};
}

NvmlGpu gpu_of(const Library& library, NvmlHandle device) {
  NvmlGpu gpu;
  gpu.uuid = text_of(library, "nvmlDeviceGetUUID", device);
  std::ranges::transform(gpu.uuid, gpu.uuid.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  gpu.name = text_of(library, "nvmlDeviceGetName", device);
  auto* mode_of = symbol<int(NvmlHandle, int*)>(library, "nvmlDeviceGetComputeMode");
  if (mode_of != nullptr) mode_of(device, &gpu.compute_mode);
  unsigned mig = 0;
  unsigned pending = 0;
  auto* mig_of = symbol<int(NvmlHandle, unsigned*, unsigned*)>(library, "nvmlDeviceGetMigMode");
  gpu.mig = mig_of != nullptr && mig_of(device, &mig, &pending) == kNvmlSuccess && mig != 0;
  gpu.device = device_of(library, device);
  return gpu;
}

// Nothing when the library does not know the device.
NvmlHandle device_by_uuid(const Library& library, std::string uuid) {
  auto* by_uuid = symbol<int(const char*, NvmlHandle*)>(library, "nvmlDeviceGetHandleByUUID");
  NvmlHandle device = nullptr;
  // NVML writes the label in capitals: "GPU-…", "MIG-…".
  std::transform(uuid.begin(), uuid.begin() + std::min<std::ptrdiff_t>(3, std::ssize(uuid)),
                 uuid.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (by_uuid == nullptr || by_uuid(uuid.c_str(), &device) != kNvmlSuccess) return nullptr;
  return device;
}

}  // namespace

std::optional<NvmlDevice> query_nvml(const std::string& uuid) {
  Library library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!library) return std::nullopt;
  NvmlUse use(library);
  auto* memory_of = symbol<int(NvmlHandle, NvmlMemory*)>(library, "nvmlDeviceGetMemoryInfo");
  if (!use || memory_of == nullptr) return std::nullopt;
  const NvmlHandle device = device_by_uuid(library, uuid);
  NvmlMemory memory{};
  if (device == nullptr || memory_of(device, &memory) != kNvmlSuccess) return std::nullopt;
  return NvmlDevice{memory.total, memory.free, memory.used, compute_processes(library, device)};
}

NvmlSystem query_nvml_system(const char* path) {
  NvmlSystem system;
  const Library library(dlopen(path, RTLD_NOW | RTLD_LOCAL));
  if (!library) return system;
  const NvmlUse use(library);
  system.mismatch = use.result() == kNvmlMismatch;
  auto* count_of = symbol<int(unsigned*)>(library, "nvmlDeviceGetCount_v2");
  auto* by_index = symbol<int(unsigned, NvmlHandle*)>(library, "nvmlDeviceGetHandleByIndex_v2");
  if (!use || count_of == nullptr || by_index == nullptr) return system;
  system.driver_version = text_of(library, "nvmlSystemGetDriverVersion");
  unsigned count = 0;
  if (count_of(&count) != kNvmlSuccess) return system;
  for (unsigned i = 0; i < count; ++i) {
    NvmlHandle device = nullptr;
    if (by_index(i, &device) == kNvmlSuccess) system.gpus.push_back(gpu_of(library, device));
  }
  return system;
}

std::optional<NvmlIdentity> query_nvml_identity(const std::string& uuid, const char* path) {
  const Library library(dlopen(path, RTLD_NOW | RTLD_LOCAL));
  if (!library) return std::nullopt;
  const NvmlUse use(library);
  const NvmlHandle device = use ? device_by_uuid(library, uuid) : nullptr;
  if (device == nullptr) return std::nullopt;
  NvmlIdentity identity;
  identity.name = text_of(library, "nvmlDeviceGetName", device);
  identity.driver_version = text_of(library, "nvmlSystemGetDriverVersion");
  int major = 0;
  int minor = 0;
  auto* capability_of =
      symbol<int(NvmlHandle, int*, int*)>(library, "nvmlDeviceGetCudaComputeCapability");
  if (capability_of != nullptr && capability_of(device, &major, &minor) == kNvmlSuccess) {
    identity.compute_capability = std::to_string(major) + "." + std::to_string(minor);
  }
  int cuda = 0;
  auto* cuda_of = symbol<int(int*)>(library, "nvmlSystemGetCudaDriverVersion_v2");
  if (cuda_of != nullptr && cuda_of(&cuda) == kNvmlSuccess) {
    identity.cuda_version = std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
  }
  return identity;
}

}  // namespace preload
