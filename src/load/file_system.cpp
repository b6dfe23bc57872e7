// SPDX-License-Identifier: Apache-2.0
#include "load/file_system.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/uio.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <random>

#include "base/fd.hpp"

namespace preload {

namespace {

// Magic numbers that linux/magic.h lacks, from the file systems' own sources and statfs(2).
constexpr std::array<std::uint64_t, 12> kNetworkMagics{
    NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, CEPH_SUPER_MAGIC,
    AFS_SUPER_MAGIC, V9FS_MAGIC,      CODA_SUPER_MAGIC, FUSE_SUPER_MAGIC,
    0x0BD00BD0,   // Lustre
    0x47504653,   // IBM Storage Scale (GPFS)
    0x19830326,   // BeeGFS
    0xAAD7AAEA};  // PanFS
constexpr std::array<std::uint64_t, 3> kMemoryMagics{TMPFS_MAGIC, RAMFS_MAGIC, HUGETLBFS_MAGIC};

template <std::size_t N>
bool contains(const std::array<std::uint64_t, N>& magics, std::uint64_t magic) {
  return std::find(magics.begin(), magics.end(), magic) != magics.end();
}

constexpr std::uint64_t kSampleBytes = 4096;
constexpr std::uint64_t kSamples = 64;
constexpr std::uint64_t kHotSamples = 61;  // 95 %: what little is missing is read on the way

}  // namespace

FileSystemKind file_system_kind(int fd) noexcept {
  struct statfs status {};
  if (fstatfs(fd, &status) != 0) return FileSystemKind::kLocal;
  const auto magic = static_cast<std::uint64_t>(status.f_type) & 0xFFFFFFFFU;
  if (contains(kNetworkMagics, magic)) return FileSystemKind::kNetwork;
  return contains(kMemoryMagics, magic) ? FileSystemKind::kMemory : FileSystemKind::kLocal;
}

// Looking must not read: on recent kernels even a read that may not wait starts the read-ahead of
// its file, unless that is opened for random access. What is looked at is read all the same, so
// each look samples other pages.
bool is_in_page_cache(int fd, std::uint64_t bytes) noexcept {
  static std::atomic<std::uint64_t> looks{0};
  std::array<char, 32> path;
  std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
  const Fd own(::open(path.data(), O_RDONLY | O_CLOEXEC));
  const int sampled = own ? own.get() : fd;
  posix_fadvise(sampled, 0, 0, POSIX_FADV_RANDOM);
  const std::uint64_t pages = (bytes + kSampleBytes - 1) / kSampleBytes;
  std::minstd_rand random(static_cast<unsigned>(
      std::chrono::steady_clock::now().time_since_epoch().count() + static_cast<long>(looks++)));
  std::array<std::byte, kSampleBytes> buffer;
  std::uint64_t hot = 0;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    // One page of each stretch of the file.
    const std::uint64_t first = pages * i / kSamples;
    const std::uint64_t stretch = std::max<std::uint64_t>(1, pages * (i + 1) / kSamples - first);
    const std::uint64_t at = (first + random() % stretch) * kSampleBytes;
    const iovec part{buffer.data(), kSampleBytes};
    const ssize_t got = preadv2(sampled, &part, 1, static_cast<off_t>(at), RWF_NOWAIT);
    if (got > 0 || at >= bytes) ++hot;
  }
  return hot >= kHotSamples;
}

}  // namespace preload
