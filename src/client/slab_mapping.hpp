// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "client/cuda_device.hpp"
#include "wire/messages.hpp"

namespace preload::client {

// One slab in this process, given back on destruction. Shared ones are read-only (cuda-ipc cannot
// be: the driver maps it writable); private ones are this process's own writable copy.
class SlabMapping {
 public:
  virtual ~SlabMapping() = default;
  virtual std::byte* data() const noexcept = 0;  // host or device address
};

// `fd` is a memfd: its seals and size are checked before it is mapped, since one that could shrink
// would be a SIGBUS later. Throws Error(kProtocol).
std::unique_ptr<SlabMapping> map_host_slab(const wire::SlabInfo& slab, int fd);
// vmm (with its fd) and cuda-ipc; `context` must be current, now and at destruction. Throws
// Error(kDevice) naming the likely reason when the driver refuses.
std::unique_ptr<SlabMapping> map_cuda_slab(const cu::PrimaryContext& context,
                                           const wire::SlabInfo& slab, int fd);

}  // namespace preload::client
