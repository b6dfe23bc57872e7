// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>

#include "base/bytes.hpp"
#include "client/mapped_slabs.hpp"

namespace preload::client {
namespace {

std::byte* as_pointer(cu::Pointer address) noexcept {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

// Memory opened through a classic IPC handle. The driver maps it writable.
class IpcMapping {
 public:
  IpcMapping(const cu::Driver& driver, const wire::SlabInfo& slab) : driver_(driver) {
    cu::IpcHandle handle;
    if (slab.handle.size() != handle.bytes.size()) {
      throw Error(Errc::kProtocol, fmt::format("a CUDA IPC handle of {} bytes instead of {}",
                                               slab.handle.size(), handle.bytes.size()));
    }
    std::memcpy(handle.bytes.data(), slab.handle.data(), handle.bytes.size());
    const cu::Result result = driver_.ipc_open(&address_, handle, cu::kIpcLazyPeer);
    if (result == 0) return;
    throw Error(Errc::kDevice,
                fmt::format("opening a CUDA IPC handle: {}. Classic IPC handles open only in "
                            "another process than the exporter's, with the same IPC and PID "
                            "namespaces and ptrace allowed; serve with --export vmm, which "
                            "needs none of these",
                            driver_.text(result)));
  }
  ~IpcMapping() { driver_.ipc_close(address_); }
  IpcMapping(const IpcMapping&) = delete;
  IpcMapping& operator=(const IpcMapping&) = delete;
  cu::Pointer address() const noexcept { return address_; }

 private:
  const cu::Driver& driver_;
  cu::Pointer address_ = 0;
};

// This process's own copy.
class IpcCopy {
 public:
  IpcCopy(const cu::Driver& driver, cu::Pointer source, std::uint64_t bytes) : driver_(driver) {
    driver_.check(driver_.mem_alloc(&address_, bytes),
                  fmt::format("allocating {} of GPU memory", format_bytes(bytes)));
    cu::Result copied = driver_.copy_device_to_device(address_, source, bytes);
    // A device-to-device copy may return before it is done, and the source is closed next.
    if (copied == 0) copied = driver_.ctx_synchronize();
    if (copied == 0) return;
    driver_.mem_free(address_);
    driver_.check(copied, "copying a slab");
  }
  ~IpcCopy() { driver_.mem_free(address_); }
  IpcCopy(const IpcCopy&) = delete;
  IpcCopy& operator=(const IpcCopy&) = delete;
  cu::Pointer address() const noexcept { return address_; }

 private:
  const cu::Driver& driver_;
  cu::Pointer address_ = 0;
};

class IpcSlabs : public MappedSlabs {
 public:
  IpcSlabs(const cu::Driver& driver, const std::vector<wire::SlabInfo>& slabs,
           const Placement& placement) {
    for (const wire::SlabInfo& slab : slabs) {
      auto opened = std::make_unique<IpcMapping>(driver, slab);
      if (placement.owns(slab)) {
        copies_.push_back(std::make_unique<IpcCopy>(driver, opened->address(), slab.bytes));
        data_.push_back(as_pointer(copies_.back()->address()));
      } else {
        data_.push_back(as_pointer(opened->address()));
        opened_.push_back(std::move(opened));
      }
    }
  }
  std::byte* data(std::size_t slab) const noexcept override { return data_[slab]; }
  std::uint64_t range_bytes() const noexcept override { return 0; }

 private:
  std::vector<std::byte*> data_;
  std::vector<std::unique_ptr<IpcMapping>> opened_;
  std::vector<std::unique_ptr<IpcCopy>> copies_;
};

}  // namespace

std::unique_ptr<MappedSlabs> map_ipc_slabs(const cu::PrimaryContext& context,
                                           const std::vector<wire::SlabInfo>& slabs,
                                           const Placement& placement) {
  if (placement.base_address != 0) {
    throw Error(Errc::kUsage,
                "a fixed address needs a daemon with --export vmm: classic CUDA IPC handles open "
                "where the driver puts them");
  }
  return std::make_unique<IpcSlabs>(context.driver(), slabs, placement);
}

}  // namespace preload::client
