// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.hpp"
#include "client/slab_mapping.hpp"

namespace preload::client {
namespace {

class HostSlab : public SlabMapping {
 public:
  explicit HostSlab(Mapping mapping) : mapping_(std::move(mapping)) {}
  std::byte* data() const noexcept override { return mapping_.data(); }

 private:
  Mapping mapping_;
};

void check_memfd(const wire::SlabInfo& slab, int fd) {
  if (!is_sealed(fd)) {
    throw Error(Errc::kProtocol,
                "the daemon sent a slab that is not a sealed memfd: it could change or shrink "
                "under us; both sides must run compatible versions");
  }
  struct stat info {};
  check_sys(::fstat(fd, &info), "looking at a slab", Errc::kProtocol);
  if (static_cast<std::uint64_t>(info.st_size) < slab.bytes) {
    throw Error(Errc::kProtocol, fmt::format("the daemon announced a slab of {} bytes and sent {}",
                                             slab.bytes, info.st_size));
  }
}

}  // namespace

std::unique_ptr<SlabMapping> map_host_slab(const wire::SlabInfo& slab, int fd) {
  check_memfd(slab, fd);
  if (slab.cls == TensorClass::kShared) {
    return std::make_unique<HostSlab>(map_fd(fd, slab.bytes, false, "a slab"));
  }
  // Copy on write: pages that this process never writes stay shared, and no other sees its writes.
  void* address = ::mmap(nullptr, slab.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) {
    check_sys(-1, fmt::format("mapping a private slab of {} bytes", slab.bytes), Errc::kMemory);
  }
  return std::make_unique<HostSlab>(Mapping(address, slab.bytes));
}

}  // namespace preload::client
