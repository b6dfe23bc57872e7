// SPDX-License-Identifier: Apache-2.0
#include "load/aligned_buffer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace preload {

namespace {
constexpr std::uint64_t kPageBytes = 4096;
}

std::span<std::byte> AlignedBuffer::reserve(std::size_t bytes) {
  if (mapping_.size() < bytes) {
    const std::size_t wanted = align_up(bytes, 2 * kMiB);
    mapping_ = {};
    void* address =
        mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) {
      throw Error(Errc::kMemory, fmt::format("cannot take {} of host memory for direct reads: {}",
                                             format_bytes(wanted), errno_text(errno)));
    }
    mapping_ = Mapping(address, wanted);
  }
  return {mapping_.data(), bytes};
}

std::uint64_t direct_alignment(int fd) noexcept {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0 && status.stx_dio_offset_align != 0) {
    const std::uint64_t wanted = std::max(status.stx_dio_offset_align, status.stx_dio_mem_align);
    return std::max<std::uint64_t>(wanted, 512);
  }
#else
  static_cast<void>(fd);
#endif
  return kPageBytes;
}

}  // namespace preload
