// SPDX-License-Identifier: Apache-2.0
#include "tuner/nccl_host.hpp"

#include <dlfcn.h>
#include <link.h>

#include <array>

#include "base/unique.hpp"

namespace preload::tuner {
namespace {

struct LibraryTraits {
  using Handle = void*;
  static Handle null() noexcept { return nullptr; }
  static void close(Handle handle) noexcept { dlclose(handle); }
};
using Library = Unique<LibraryTraits>;

// A library of this process, never one that it does not have yet. nullptr: the program itself.
Library loaded(const char* name) {
  return Library(dlopen(name, RTLD_LAZY | (name == nullptr ? 0 : RTLD_NOLOAD)));
}

template <class Function>
Function* symbol(const Library& library, const char* name) {
  return library ? reinterpret_cast<Function*>(dlsym(library.get(), name)) : nullptr;
}

}  // namespace

void NcclLog::warn(const std::string& text) const {
  if (log_ != nullptr) log_(nccl::kWarn, nccl::kTuning, "preload", 0, "%s", text.c_str());
}

void NcclLog::info(const std::string& text) const {
  if (log_ != nullptr) {
    log_(nccl::kInfo, nccl::kInit | nccl::kTuning, "preload", 0, "%s", text.c_str());
  }
}

std::optional<int> nccl_version_behind(nccl::Logger log) {
  Dl_info info{};
  void* map = nullptr;
  if (log == nullptr || dladdr1(reinterpret_cast<void*>(log), &info, &map, RTLD_DL_LINKMAP) == 0 ||
      map == nullptr) {
    return std::nullopt;
  }
  const char* const path = static_cast<const link_map*>(map)->l_name;
  const Library library = loaded(*path == '\0' ? nullptr : path);
  auto* const get_version = symbol<int(int*)>(library, "ncclGetVersion");
  int version = 0;
  if (get_version == nullptr || get_version(&version) != nccl::kSuccess || version <= 0) {
    return std::nullopt;
  }
  return version;
}

std::optional<std::string> current_gpu_name() {
  const Library driver = loaded("libcuda.so.1");
  auto* const get_device = symbol<int(int*)>(driver, "cuCtxGetDevice");
  auto* const get_name = symbol<int(char*, int, int)>(driver, "cuDeviceGetName");
  if (get_device == nullptr || get_name == nullptr) return std::nullopt;
  int device = 0;
  std::array<char, 256> name{};
  if (get_device(&device) != 0 || get_name(name.data(), name.size(), device) != 0) {
    return std::nullopt;
  }
  return std::string(name.data());
}

}  // namespace preload::tuner
