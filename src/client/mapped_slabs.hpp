// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "client/cuda_device.hpp"
#include "wire/messages.hpp"

namespace preload::client {

inline constexpr std::uint64_t kBaseAlignment = 2 << 20;

// How a shard's slabs are to lie in this process.
struct Placement {
  bool copy = false;               // all of them as copies of this process's own
  std::uint64_t base_address = 0;  // of the first byte; 0: anywhere
  bool owns(const wire::SlabInfo& slab) const noexcept {
    return copy || slab.cls == TensorClass::kPrivate;
  }
};

// The addresses that were asked for are in use, or not to be had.
class AddressTaken : public std::exception {
 public:
  explicit AddressTaken(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// The slabs of one shard in this process, given back together. Those that the placement owns are
// writable; the others are read-only (cuda-ipc cannot be: the driver maps it writable).
class MappedSlabs {
 public:
  virtual ~MappedSlabs() = default;
  virtual std::byte* data(std::size_t slab) const noexcept = 0;  // host or device address
  // All slabs lie in one range of addresses, in order; 0 where they do not (cuda-ipc).
  virtual std::uint64_t range_bytes() const noexcept = 0;
};

// Where each slab begins in a range of all of them, and the length of the whole: every slab at a
// multiple of 2 MiB, what the driver and huge pages want.
std::vector<std::uint64_t> range_offsets(const std::vector<wire::SlabInfo>& slabs);
// Throws Error(kMemory) when the slabs that the placement owns do not fit into `free_bytes`.
void require_room(const std::vector<wire::SlabInfo>& slabs, const Placement& placement,
                  std::uint64_t free_bytes, const std::string& of_what);
[[noreturn]] void throw_address_taken(std::uint64_t address, std::uint64_t bytes,
                                      const std::string& reason);

// `fds` are memfds: their seals and sizes are checked before they are mapped, since one that could
// shrink would be a SIGBUS later. Throws Error(kProtocol), Error(kMemory) or AddressTaken.
std::unique_ptr<MappedSlabs> map_host_slabs(const std::vector<wire::SlabInfo>& slabs,
                                            const std::vector<Fd>& fds, const Placement& placement);
// vmm (with fds) or cuda-ipc; `context` must be current, now and at destruction. Throws also
// Error(kDevice) naming the likely reason when the driver refuses.
std::unique_ptr<MappedSlabs> map_vmm_slabs(const cu::PrimaryContext& context,
                                           const std::vector<wire::SlabInfo>& slabs,
                                           const std::vector<Fd>& fds, const Placement& placement);
std::unique_ptr<MappedSlabs> map_ipc_slabs(const cu::PrimaryContext& context,
                                           const std::vector<wire::SlabInfo>& slabs,
                                           const Placement& placement);

}  // namespace preload::client
