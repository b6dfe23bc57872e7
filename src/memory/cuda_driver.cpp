// SPDX-License-Identifier: Apache-2.0
#include "memory/cuda_driver.cuh"

#include <dlfcn.h>
#include <fmt/format.h>

namespace preload {

namespace {

struct LoadedDriver {
  CudaDriver driver;
  std::string reason;  // why it cannot be used; empty when it can
};

template <class Function>
bool find(void* library, const char* name, Function& out) {
  out = reinterpret_cast<Function>(dlsym(library, name));
  return out != nullptr;
}

LoadedDriver load_driver() {
  LoadedDriver loaded;
  // Never closed: the driver has threads and exit handlers of its own.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    loaded.reason =
        "libcuda.so.1 was not found: there is no NVIDIA driver here, or the container "
        "was started without it";
    return loaded;
  }
  CudaDriver& d = loaded.driver;
  const bool complete =
      find(library, "cuInit", d.init) && find(library, "cuDeviceGetCount", d.device_count) &&
      find(library, "cuDeviceGet", d.device) && find(library, "cuDeviceGetName", d.device_name) &&
      find(library, "cuDeviceTotalMem_v2", d.device_total) &&
      find(library, "cuDeviceGetAttribute", d.device_attribute) &&
      find(library, "cuDeviceGetUuid_v2", d.device_uuid) &&
      find(library, "cuMemCreate", d.mem_create) && find(library, "cuMemRelease", d.mem_release) &&
      find(library, "cuMemAddressReserve", d.address_reserve) &&
      find(library, "cuMemAddressFree", d.address_free) && find(library, "cuMemMap", d.mem_map) &&
      find(library, "cuMemUnmap", d.mem_unmap) && find(library, "cuMemSetAccess", d.set_access) &&
      find(library, "cuMemExportToShareableHandle", d.export_handle) &&
      find(library, "cuMemImportFromShareableHandle", d.import_handle) &&
      find(library, "cuMemGetAllocationGranularity", d.granularity) &&
      find(library, "cuGetErrorString", d.error_string);
  find(library, "cuDeviceGetUuid", d.parent_device_uuid);
  if (!complete) {
    loaded.reason = "the NVIDIA driver is too old: it needs CUDA 11.4 or newer";
    return loaded;
  }
  if (const CUresult result = d.init(0); result != CUDA_SUCCESS) {
    const char* text = nullptr;
    d.error_string(result, &text);
    loaded.reason = fmt::format("the NVIDIA driver does not start: {} ({})",
                                text != nullptr ? text : "unknown error", static_cast<int>(result));
  }
  return loaded;
}

const LoadedDriver& loaded_driver() {
  static const LoadedDriver loaded = load_driver();
  return loaded;
}

}  // namespace

const CudaDriver* find_cuda_driver(std::string& reason) {
  const LoadedDriver& loaded = loaded_driver();
  reason = loaded.reason;
  return loaded.reason.empty() ? &loaded.driver : nullptr;
}

const CudaDriver& cuda_driver() {
  const LoadedDriver& loaded = loaded_driver();
  if (!loaded.reason.empty()) throw Error(Errc::kDevice, loaded.reason);
  return loaded.driver;
}

std::string cuda_text(CUresult result) {
  const LoadedDriver& loaded = loaded_driver();
  const char* text = nullptr;
  if (loaded.driver.error_string != nullptr) loaded.driver.error_string(result, &text);
  return fmt::format("{} ({})", text != nullptr ? text : "unknown error", static_cast<int>(result));
}

std::string cuda_text(cudaError_t result) {
  return fmt::format("{} ({})", cudaGetErrorString(result), static_cast<int>(result));
}

void check_cuda(CUresult result, std::string_view what, std::source_location where) {
  if (result == CUDA_SUCCESS) return;
  throw Error(result == CUDA_ERROR_OUT_OF_MEMORY ? Errc::kMemory : Errc::kDevice,
              fmt::format("{}: {}", what, cuda_text(result)), where);
}

void check_cuda(cudaError_t result, std::string_view what, std::source_location where) {
  if (result == cudaSuccess) return;
  throw Error(result == cudaErrorMemoryAllocation ? Errc::kMemory : Errc::kDevice,
              fmt::format("{}: {}", what, cuda_text(result)), where);
}

}  // namespace preload
