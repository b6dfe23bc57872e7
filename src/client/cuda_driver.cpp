// SPDX-License-Identifier: Apache-2.0
#include "client/cuda_driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace preload::cu {

void DlTraits::close(void* handle) noexcept { ::dlclose(handle); }

namespace {

// NODELETE: other users of the driver in this process, and its own threads, outlive us.
Unique<DlTraits> open_library() {
  Unique<DlTraits> library(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (!library) {
    const char* reason = ::dlerror();
    throw Error(Errc::kDevice,
                fmt::format("no CUDA driver in this process: {}; a GPU cannot be named or mapped "
                            "here (weights in host memory are \"host:N\")",
                            reason != nullptr ? reason : "libcuda.so.1 cannot be opened"));
  }
  return library;
}

}  // namespace

template <class Function>
Function* Driver::find(const char* name) const {
  void* symbol = ::dlsym(library_.get(), name);
  if (symbol == nullptr) {
    throw Error(Errc::kDevice, fmt::format("the CUDA driver has no {}: it is older than CUDA 11.4; "
                                           "update the driver",
                                           name));
  }
  return reinterpret_cast<Function*>(symbol);
}

Driver::Driver() : library_(open_library()) {
  const auto bind = [this]<class Function>(Function*& slot, const char* name) {
    slot = find<Function>(name);
  };
  bind(init, "cuInit");
  bind(get_error_name, "cuGetErrorName");
  bind(get_error_string, "cuGetErrorString");
  bind(device_get_count, "cuDeviceGetCount");
  bind(device_get, "cuDeviceGet");
  bind(device_get_uuid, "cuDeviceGetUuid");
  bind(device_get_uuid_v2, "cuDeviceGetUuid_v2");
  bind(primary_retain, "cuDevicePrimaryCtxRetain");
  bind(primary_release, "cuDevicePrimaryCtxRelease_v2");
  bind(ctx_push, "cuCtxPushCurrent_v2");
  bind(ctx_pop, "cuCtxPopCurrent_v2");
  bind(ctx_synchronize, "cuCtxSynchronize");
  bind(import_shareable, "cuMemImportFromShareableHandle");
  bind(release_allocation, "cuMemRelease");
  bind(address_reserve, "cuMemAddressReserve");
  bind(address_free, "cuMemAddressFree");
  bind(map, "cuMemMap");
  bind(unmap, "cuMemUnmap");
  bind(set_access, "cuMemSetAccess");
  bind(mem_create, "cuMemCreate");
  bind(mem_info, "cuMemGetInfo_v2");
  bind(mem_alloc, "cuMemAlloc_v2");
  bind(mem_free, "cuMemFree_v2");
  bind(copy_device_to_device, "cuMemcpyDtoD_v2");
  bind(copy_device_to_host_async, "cuMemcpyDtoHAsync_v2");
  bind(host_alloc, "cuMemHostAlloc");
  bind(host_free, "cuMemFreeHost");
  bind(stream_create, "cuStreamCreate");
  bind(stream_synchronize, "cuStreamSynchronize");
  bind(stream_destroy, "cuStreamDestroy_v2");
  bind(ipc_open, "cuIpcOpenMemHandle_v2");
  bind(ipc_close, "cuIpcCloseMemHandle");
  // It starts only where it sees a GPU, and what it sees may have been taken away on purpose.
  if (const Result result = init(0); result != 0) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    throw Error(
        Errc::kDevice,
        fmt::format("starting the CUDA driver: {}; CUDA_VISIBLE_DEVICES is {}", text(result),
                    visible != nullptr ? fmt::format("\"{}\"", visible) : "not set"));
  }
}

void Driver::check(Result result, std::string_view what, std::source_location where) const {
  if (result != 0) throw Error(Errc::kDevice, fmt::format("{}: {}", what, text(result)), where);
}

std::string Driver::text(Result result) const {
  const char* name = nullptr;
  const char* words = nullptr;
  get_error_name(result, &name);
  get_error_string(result, &words);
  if (name == nullptr) return fmt::format("CUDA error {}", result);
  return fmt::format("{}: {}", name, words != nullptr ? words : "no text");
}

}  // namespace preload::cu
