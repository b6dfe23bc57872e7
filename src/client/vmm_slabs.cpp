// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/bytes.hpp"
#include "client/mapped_slabs.hpp"

namespace preload::client {
namespace {

// A reservation of device addresses.
class DeviceRange {
 public:
  DeviceRange(const cu::Driver& driver, std::uint64_t bytes, std::uint64_t wanted)
      : driver_(driver), bytes_(bytes) {
    if (bytes_ == 0) return;
    const cu::Result result = driver_.address_reserve(&address_, bytes_, 0, wanted, 0);
    if (result != 0 && wanted != 0) throw_address_taken(wanted, bytes_, driver_.text(result));
    driver_.check(result, fmt::format("reserving {} of address space", format_bytes(bytes_)));
    // The driver takes the address for a hint.
    if (wanted == 0 || address_ == wanted) return;
    driver_.address_free(address_, bytes_);
    throw_address_taken(wanted, bytes_, "the CUDA driver gives other addresses");
  }
  ~DeviceRange() {
    if (bytes_ != 0) driver_.address_free(address_, bytes_);
  }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;
  cu::Pointer address() const noexcept { return address_; }

 private:
  const cu::Driver& driver_;
  std::uint64_t bytes_;
  cu::Pointer address_ = 0;
};

// An allocation mapped somewhere in a range. The mapping keeps the memory: the reference to the
// allocation is dropped at once.
class DeviceMapping {
 public:
  DeviceMapping(const cu::PrimaryContext& context, cu::Allocation allocation, cu::Pointer address,
                std::uint64_t bytes, cu::Access access)
      : driver_(context.driver()), address_(address), bytes_(bytes) {
    const cu::Result mapped = driver_.map(address_, bytes_, 0, allocation, 0);
    driver_.release_allocation(allocation);
    driver_.check(mapped, fmt::format("mapping a slab of {}", format_bytes(bytes_)));
    const cu::AccessDescription description{{1, context.ordinal()}, access};
    const cu::Result allowed = driver_.set_access(address_, bytes_, &description, 1);
    if (allowed == 0) return;
    driver_.unmap(address_, bytes_);
    driver_.check(allowed, "giving access to a mapped slab");
  }
  ~DeviceMapping() { driver_.unmap(address_, bytes_); }
  DeviceMapping(const DeviceMapping&) = delete;
  DeviceMapping& operator=(const DeviceMapping&) = delete;
  cu::Pointer address() const noexcept { return address_; }

 private:
  const cu::Driver& driver_;
  cu::Pointer address_;
  std::uint64_t bytes_;
};

cu::Allocation import_slab(const cu::Driver& driver, int fd) {
  cu::Allocation allocation = 0;
  // The driver takes the descriptor's number in place of a pointer.
  void* const handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(fd));
  driver.check(driver.import_shareable(&allocation, handle, cu::kPosixFd),
               "importing a slab of GPU memory (both sides need the same driver and GPU)");
  return allocation;
}

cu::Allocation allocate(const cu::PrimaryContext& context, std::uint64_t bytes) {
  cu::AllocationProperties properties;
  properties.location.id = context.ordinal();
  cu::Allocation allocation = 0;
  context.driver().check(context.driver().mem_create(&allocation, bytes, &properties, 0),
                         fmt::format("allocating {} of GPU memory", format_bytes(bytes)));
  return allocation;
}

class VmmSlabs : public MappedSlabs {
 public:
  VmmSlabs(const cu::PrimaryContext& context, const std::vector<wire::SlabInfo>& slabs,
           const std::vector<Fd>& fds, const Placement& placement)
      : offsets_(range_offsets(slabs)),
        range_(context.driver(), offsets_.back(), placement.base_address) {
    for (std::size_t i = 0; i < slabs.size(); ++i) {
      const cu::Pointer address = range_.address() + offsets_[i];
      const std::uint64_t bytes = slabs[i].bytes;
      if (!placement.owns(slabs[i])) {
        slabs_.push_back(
            std::make_unique<DeviceMapping>(context, import_slab(context.driver(), fds[i].get()),
                                            address, bytes, cu::Access::kRead));
        continue;
      }
      slabs_.push_back(std::make_unique<DeviceMapping>(context, allocate(context, bytes), address,
                                                       bytes, cu::Access::kReadWrite));
      copy(context, fds[i].get(), address, bytes);
    }
  }
  std::byte* data(std::size_t slab) const noexcept override {
    return reinterpret_cast<std::byte*>(
        static_cast<std::uintptr_t>(range_.address() + offsets_[slab]));
  }
  std::uint64_t range_bytes() const noexcept override { return offsets_.back(); }

 private:
  static void copy(const cu::PrimaryContext& context, int fd, cu::Pointer to, std::uint64_t bytes) {
    const cu::Driver& driver = context.driver();
    const DeviceRange range(driver, bytes, 0);
    const DeviceMapping source(context, import_slab(driver, fd), range.address(), bytes,
                               cu::Access::kRead);
    driver.check(driver.copy_device_to_device(to, source.address(), bytes), "copying a slab");
    // A device-to-device copy may return before it is done, and the source is unmapped next.
    driver.check(driver.ctx_synchronize(), "copying a slab");
  }

  std::vector<std::uint64_t> offsets_;
  DeviceRange range_;
  std::vector<std::unique_ptr<DeviceMapping>> slabs_;
};

}  // namespace

std::unique_ptr<MappedSlabs> map_vmm_slabs(const cu::PrimaryContext& context,
                                           const std::vector<wire::SlabInfo>& slabs,
                                           const std::vector<Fd>& fds, const Placement& placement) {
  return std::make_unique<VmmSlabs>(context, slabs, fds, placement);
}

}  // namespace preload::client
