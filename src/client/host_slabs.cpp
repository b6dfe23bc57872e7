// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "base/host_limits.hpp"
#include "client/mapped_slabs.hpp"
#include "client/slab_reader.hpp"
#include "load/run_threads.hpp"

namespace preload::client {
namespace {

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

constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

Mapping reserve_at(std::uint64_t address, std::uint64_t bytes) {
  void* const wanted = reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
  void* const got = ::mmap(wanted, bytes, PROT_NONE, kReserve | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) throw_address_taken(address, bytes, errno_text(errno));
  Mapping mapping(got, bytes);
  // A kernel older than 4.17 takes the address for a hint.
  if (got != wanted) throw_address_taken(address, bytes, "something lies there");
  return mapping;
}

// Addresses without memory that begin as a range at a fixed address has to.
Mapping reserve(std::uint64_t bytes) {
  const std::uint64_t with_slack = bytes + kBaseAlignment;
  void* const got = ::mmap(nullptr, with_slack, PROT_NONE, kReserve, -1, 0);
  if (got == MAP_FAILED) {
    check_sys(-1, fmt::format("reserving {} of addresses", format_bytes(bytes)), Errc::kMemory);
  }
  auto* const first = static_cast<std::byte*>(got);
  const std::uint64_t head = align_up(reinterpret_cast<std::uintptr_t>(first), kBaseAlignment) -
                             reinterpret_cast<std::uintptr_t>(first);
  if (head != 0) ::munmap(first, head);
  if (with_slack != head + bytes) ::munmap(first + head + bytes, with_slack - head - bytes);
  return {first + head, bytes};
}

class HostSlabs : public MappedSlabs {
 public:
  HostSlabs(const std::vector<wire::SlabInfo>& slabs, const std::vector<Fd>& fds,
            const Placement& placement)
      : offsets_(range_offsets(slabs)),
        range_(placement.base_address != 0 ? reserve_at(placement.base_address, offsets_.back())
                                           : reserve(offsets_.back())) {
    for (std::size_t i = 0; i < slabs.size(); ++i) check_memfd(slabs[i], fds[i].get());
    if (placement.copy) {
      const HostMemory memory = host_memory();
      require_room(slabs, placement, memory.available_bytes,
                   fmt::format("host memory ({})", memory.limited_by));
    }
    for (std::size_t i = 0; i < slabs.size(); ++i) {
      if (slabs[i].bytes != 0) place(i, slabs[i], fds[i].get(), placement);
    }
    if (placement.copy) copy_all(slabs, fds);
  }
  std::byte* data(std::size_t slab) const noexcept override {
    return range_.data() + offsets_[slab];
  }
  std::uint64_t range_bytes() const noexcept override { return offsets_.back(); }

 private:
  // What lies over the reservation goes with it: never a hole that another thread could map into.
  void place(std::size_t i, const wire::SlabInfo& slab, int fd, const Placement& placement) const {
    const int access = PROT_READ | (placement.owns(slab) ? PROT_WRITE : 0);
    // A private slab is copied on write: pages that this process never writes stay shared.
    const int flags = placement.copy         ? MAP_PRIVATE | MAP_ANONYMOUS
                      : placement.owns(slab) ? MAP_PRIVATE
                                             : MAP_SHARED;
    const void* const got =
        ::mmap(data(i), slab.bytes, access, flags | MAP_FIXED, placement.copy ? -1 : fd, 0);
    if (got == MAP_FAILED) {
      check_sys(-1, fmt::format("mapping a slab of {}", format_bytes(slab.bytes)), Errc::kMemory);
    }
  }

  void copy_all(const std::vector<wire::SlabInfo>& slabs, const std::vector<Fd>& fds) const {
    std::vector<Piece> pieces;
    std::vector<Mapping> sources;
    for (std::size_t i = 0; i < slabs.size(); ++i) {
      sources.push_back(
          slabs[i].bytes == 0 ? Mapping() : map_fd(fds[i].get(), slabs[i].bytes, false, "a slab"));
      for (std::uint64_t at = 0; at < slabs[i].bytes; at += kPieceBytes) {
        pieces.push_back(
            {static_cast<std::uint32_t>(i), at, std::min(kPieceBytes, slabs[i].bytes - at)});
      }
    }
    std::atomic<std::size_t> next{0};
    run_threads(default_threads(), [&](int, const std::atomic<bool>&) {
      for (std::size_t i = next++; i < pieces.size(); i = next++) {
        const Piece& piece = pieces[i];
        std::memcpy(data(piece.slab) + piece.offset, sources[piece.slab].data() + piece.offset,
                    piece.bytes);
      }
    });
  }

  std::vector<std::uint64_t> offsets_;
  Mapping range_;
};

}  // namespace

std::unique_ptr<MappedSlabs> map_host_slabs(const std::vector<wire::SlabInfo>& slabs,
                                            const std::vector<Fd>& fds,
                                            const Placement& placement) {
  return std::make_unique<HostSlabs>(slabs, fds, placement);
}

}  // namespace preload::client
