// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_residency.hpp"

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "memory/device.hpp"
#include "memory/slab.hpp"

namespace preload::test {
namespace {

void check(cudaError_t status, const std::string& what) {
  if (status != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(status));
}

}  // namespace

Residency on_device(Residency host, int ordinal) {
  const std::vector<Device> devices = visible_devices();
  if (devices.empty()) throw std::runtime_error("no GPU: " + no_devices_reason());
  set_device(ordinal);
  std::vector<SlabSpec> specs;
  for (const SlabHandle& slab : host.slabs) specs.push_back({slab.bytes, slab.cls});
  const auto memory = allocate_slabs(HandleKind::kVmm, specs, ordinal);
  for (std::uint32_t i = 0; i < specs.size(); ++i) {
    const Mapping bytes = map_fd(host.slabs[i].fd.get(), specs[i].bytes, false, "a host slab");
    check(cudaMemcpy(memory->address(i), bytes.data(), specs[i].bytes, cudaMemcpyHostToDevice),
          "copying a slab to the GPU");
  }
  check(cudaDeviceSynchronize(), "waiting for the GPU");
  host.slabs = memory->export_handles();
  memory->unmap();
  give_up_context(ordinal);
  host.endpoint.device = devices.at(static_cast<std::size_t>(ordinal)).uuid;
  return host;
}

}  // namespace preload::test
