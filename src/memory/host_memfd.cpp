// SPDX-License-Identifier: Apache-2.0
#include "memory/host_memfd.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/bytes.hpp"
#include "base/host_limits.hpp"

namespace preload {

namespace {

[[noreturn]] void refuse(std::uint64_t needed, const Error& cause) {
  throw Error(Errc::kMemory,
              fmt::format("the weights need {} of host memory, which this process cannot have: {}: "
                          "raise its limits (ulimit -v, ulimit -f) or the machine's overcommit, or "
                          "shard over more ranks",
                          format_bytes(needed), cause.what()));
}

}  // namespace

HostMemfd::HostMemfd(const std::vector<SlabSpec>& slabs) {
  std::uint64_t needed = 0;
  for (const SlabSpec& spec : slabs) needed += spec.bytes;
  // Pages come with the first write, when it is too late to refuse: the kernel would kill us.
  const HostMemory memory = host_memory();
  if (needed > memory.available_bytes) {
    throw Error(Errc::kMemory,
                fmt::format("the weights need {} of host memory, but only {} of {} are available "
                            "({}): free memory, raise the limit, or shard over more ranks",
                            format_bytes(needed), format_bytes(memory.available_bytes),
                            format_bytes(memory.total_bytes), memory.limited_by));
  }
  slabs_.reserve(slabs.size());
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    const std::string name = fmt::format("preload-slab-{}", i);
    Slab slab{slabs[i], Fd(), Mapping()};
    try {
      slab.fd = make_memfd(name, slab.spec.bytes);
      slab.mapping = map_fd(slab.fd.get(), slab.spec.bytes, true, name);
    } catch (const Error& error) {
      refuse(needed, error);
    }
    // Advice only: whether shared memory gets huge pages is the machine's setting.
    madvise(slab.mapping.data(), slab.mapping.size(), MADV_HUGEPAGE);
    slabs_.push_back(std::move(slab));
  }
}

std::vector<Fd> HostMemfd::share() const {
  std::vector<Fd> fds;
  for (const Slab& slab : slabs_) fds.push_back(duplicate(slab.fd.get()));
  return fds;
}

std::vector<SlabHandle> HostMemfd::export_handles() {
  std::vector<SlabHandle> handles;
  handles.reserve(slabs_.size());
  for (Slab& slab : slabs_) {
    if (!is_sealed(slab.fd.get())) seal_memfd(slab.fd.get());
    SlabHandle handle;
    handle.kind = HandleKind::kHost;
    handle.cls = slab.spec.cls;
    handle.bytes = slab.spec.bytes;
    handle.fd = duplicate(slab.fd.get());
    handles.push_back(std::move(handle));
  }
  return handles;
}

void HostMemfd::unmap() noexcept {
  for (Slab& slab : slabs_) {
    slab.mapping = Mapping();
    slab.fd.reset();
  }
}

PeerMemfds::PeerMemfds(const std::vector<SlabSpec>& slabs, const std::vector<Fd>& fds,
                       bool writable) {
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    mappings_.push_back(
        map_fd(fds[i].get(), slabs[i].bytes, writable, "another process's slab of host memory"));
  }
}

}  // namespace preload
