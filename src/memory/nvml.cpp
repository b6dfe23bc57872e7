// SPDX-License-Identifier: Apache-2.0
#include "memory/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
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
    if (init == nullptr || shutdown_ == nullptr || init() != kNvmlSuccess) shutdown_ = nullptr;
  }
  NvmlUse(const NvmlUse&) = delete;
  NvmlUse& operator=(const NvmlUse&) = delete;
  ~NvmlUse() {
    if (shutdown_ != nullptr) shutdown_();
  }
  explicit operator bool() const noexcept { return shutdown_ != nullptr; }

 private:
  int (*shutdown_)();
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

}  // namespace

std::optional<NvmlDevice> query_nvml(const std::string& uuid) {
  Library library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (!library) return std::nullopt;
  NvmlUse use(library);
  auto* by_uuid = symbol<int(const char*, NvmlHandle*)>(library, "nvmlDeviceGetHandleByUUID");
  auto* memory_of = symbol<int(NvmlHandle, NvmlMemory*)>(library, "nvmlDeviceGetMemoryInfo");
  if (!use || by_uuid == nullptr || memory_of == nullptr) return std::nullopt;

  std::string label = uuid;  // NVML writes the label in capitals: "GPU-…", "MIG-…"
  std::transform(label.begin(), label.begin() + std::min<std::ptrdiff_t>(3, std::ssize(label)),
                 label.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  NvmlHandle device = nullptr;
  NvmlMemory memory{};
  if (by_uuid(label.c_str(), &device) != kNvmlSuccess) return std::nullopt;
  if (memory_of(device, &memory) != kNvmlSuccess) return std::nullopt;
  return NvmlDevice{memory.total, memory.free, memory.used, compute_processes(library, device)};
}

}  // namespace preload
