// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>

#include "base/bytes.hpp"
#include "client/slab_mapping.hpp"

namespace preload::client {
namespace {

std::byte* as_pointer(cu::Pointer address) noexcept {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

// An imported VMM allocation in an address range of our own.
class VmmSlab : public SlabMapping {
 public:
  VmmSlab(const cu::PrimaryContext& context, const wire::SlabInfo& slab, int fd)
      : driver_(context.driver()), bytes_(slab.bytes) {
    try {
      reserve_and_map(fd);
      const cu::AccessDescription access{{1, context.ordinal()}, cu::Access::kRead};
      driver_.check(driver_.set_access(address_, bytes_, &access, 1),
                    "making a mapped slab readable");
    } catch (...) {
      give_back();
      throw;
    }
  }
  ~VmmSlab() override { give_back(); }
  VmmSlab(const VmmSlab&) = delete;
  VmmSlab& operator=(const VmmSlab&) = delete;
  std::byte* data() const noexcept override { return as_pointer(address_); }

 private:
  void reserve_and_map(int fd) {
    cu::Allocation allocation = 0;
    // The driver takes the descriptor's number in place of a pointer.
    void* const handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
    driver_.check(driver_.import_shareable(&allocation, handle, cu::kPosixFd),
                  "importing a slab of GPU memory (both sides need the same driver and GPU)");
    // The mapping keeps the memory: our reference to the allocation is dropped at once.
    struct Release {
      const cu::Driver& driver;
      cu::Allocation allocation;
      ~Release() { driver.release_allocation(allocation); }
    } release{driver_, allocation};
    driver_.check(driver_.address_reserve(&address_, bytes_, 0, 0, 0),
                  fmt::format("reserving {} of address space", format_bytes(bytes_)));
    driver_.check(driver_.map(address_, bytes_, 0, allocation, 0),
                  fmt::format("mapping a slab of {}", format_bytes(bytes_)));
    mapped_ = true;
  }

  void give_back() noexcept {
    if (mapped_) driver_.unmap(address_, bytes_);
    if (address_ != 0) driver_.address_free(address_, bytes_);
    mapped_ = false;
    address_ = 0;
  }

  const cu::Driver& driver_;
  std::uint64_t bytes_;
  cu::Pointer address_ = 0;
  bool mapped_ = false;
};

// Memory opened through a classic IPC handle. The driver maps it writable.
class IpcSlab : public SlabMapping {
 public:
  IpcSlab(const cu::PrimaryContext& context, const wire::SlabInfo& slab)
      : driver_(context.driver()) {
    cu::IpcHandle handle;
    if (slab.handle.size() != handle.bytes.size()) {
      throw Error(Errc::kProtocol, fmt::format("a CUDA IPC handle of {} bytes instead of {}",
                                               slab.handle.size(), handle.bytes.size()));
    }
    std::memcpy(handle.bytes.data(), slab.handle.data(), handle.bytes.size());
    const cu::Result result = driver_.ipc_open(&address_, handle, cu::kIpcLazyPeer);
    if (result != 0) {
      throw Error(Errc::kDevice,
                  fmt::format("opening a CUDA IPC handle: {}. Classic IPC handles open only in "
                              "another process than the exporter's, with the same IPC and PID "
                              "namespaces and ptrace allowed; serve with --export vmm, which "
                              "needs none of these",
                              driver_.text(result)));
    }
  }
  ~IpcSlab() override { driver_.ipc_close(address_); }
  IpcSlab(const IpcSlab&) = delete;
  IpcSlab& operator=(const IpcSlab&) = delete;
  std::byte* data() const noexcept override { return as_pointer(address_); }

 private:
  const cu::Driver& driver_;
  cu::Pointer address_ = 0;
};

// This process's own copy of a private slab.
class CopiedSlab : public SlabMapping {
 public:
  CopiedSlab(const cu::PrimaryContext& context, const SlabMapping& from, std::uint64_t bytes)
      : driver_(context.driver()) {
    const cu::Result result = driver_.mem_alloc(&address_, bytes);
    if (result != 0) {
      throw Error(Errc::kDevice, fmt::format("allocating {} of GPU memory for private tensors: {}",
                                             format_bytes(bytes), driver_.text(result)));
    }
    const auto source = static_cast<cu::Pointer>(reinterpret_cast<std::uintptr_t>(from.data()));
    cu::Result copied = driver_.copy_device_to_device(address_, source, bytes);
    // A device-to-device copy may return before it is done, and the source is unmapped next.
    if (copied == 0) copied = driver_.ctx_synchronize();
    if (copied != 0) {
      driver_.mem_free(address_);
      driver_.check(copied, "copying private tensors");
    }
  }
  ~CopiedSlab() override { driver_.mem_free(address_); }
  CopiedSlab(const CopiedSlab&) = delete;
  CopiedSlab& operator=(const CopiedSlab&) = delete;
  std::byte* data() const noexcept override { return as_pointer(address_); }

 private:
  const cu::Driver& driver_;
  cu::Pointer address_ = 0;
};

std::unique_ptr<SlabMapping> open_slab(const cu::PrimaryContext& context,
                                       const wire::SlabInfo& slab, int fd) {
  if (slab.kind == wire::kVmmKind) return std::make_unique<VmmSlab>(context, slab, fd);
  if (slab.kind == wire::kCudaIpcKind) return std::make_unique<IpcSlab>(context, slab);
  throw Error(Errc::kProtocol, fmt::format("the daemon sent a slab of unknown kind \"{}\": update "
                                           "this client",
                                           slab.kind));
}

}  // namespace

std::unique_ptr<SlabMapping> map_cuda_slab(const cu::PrimaryContext& context,
                                           const wire::SlabInfo& slab, int fd) {
  std::unique_ptr<SlabMapping> opened = open_slab(context, slab, fd);
  if (slab.cls == TensorClass::kShared) return opened;
  return std::make_unique<CopiedSlab>(context, *opened, slab.bytes);
}

}  // namespace preload::client
