// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <source_location>
#include <string>
#include <string_view>

#include "base/error.hpp"

// Needs CUDA's headers, hence .cuh: private to memory/, load/, bench/ and the GPU tests.
namespace preload {

// The driver functions used here, found in libcuda.so.1 when first needed: nothing links the
// driver, so the binary starts on machines without one.
struct CudaDriver {
  decltype(&::cuInit) init = nullptr;
  decltype(&::cuDeviceGetCount) device_count = nullptr;
  decltype(&::cuDeviceGet) device = nullptr;
  decltype(&::cuDeviceGetName) device_name = nullptr;
  decltype(&::cuDeviceTotalMem) device_total = nullptr;
  decltype(&::cuDeviceGetAttribute) device_attribute = nullptr;
  CUresult (*device_uuid)(CUuuid*, CUdevice) = nullptr;         // of the MIG instance, if one
  CUresult (*parent_device_uuid)(CUuuid*, CUdevice) = nullptr;  // of the GPU; null if not exported
  decltype(&::cuMemCreate) mem_create = nullptr;
  decltype(&::cuMemRelease) mem_release = nullptr;
  decltype(&::cuMemAddressReserve) address_reserve = nullptr;
  decltype(&::cuMemAddressFree) address_free = nullptr;
  decltype(&::cuMemMap) mem_map = nullptr;
  decltype(&::cuMemUnmap) mem_unmap = nullptr;
  decltype(&::cuMemSetAccess) set_access = nullptr;
  decltype(&::cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&::cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&::cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&::cuGetErrorString) error_string = nullptr;
};

// The driver, initialised; nullptr with the reason where there is none or it has no device.
const CudaDriver* find_cuda_driver(std::string& reason);
const CudaDriver& cuda_driver();  // throws Error(kDevice) with the reason

std::string cuda_text(CUresult result);  // "out of memory (2)"
std::string cuda_text(cudaError_t result);

// Throw Error(kDevice), or kMemory when memory ran out, with `what` and the driver's text.
void check_cuda(CUresult result, std::string_view what,
                std::source_location where = std::source_location::current());
void check_cuda(cudaError_t result, std::string_view what,
                std::source_location where = std::source_location::current());

}  // namespace preload
