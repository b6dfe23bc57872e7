// SPDX-License-Identifier: Apache-2.0
#include "load/ring.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

#include "base/bytes.hpp"
#include "load/load_job.hpp"

namespace preload {

namespace {

constexpr std::uint64_t kHugePageBytes = 2 * kMiB;
constexpr std::uint64_t kMinChunkBytes = 64 * kKiB;
constexpr std::uint64_t kMaxScratchBytes = kMiB;  // stays in a core's cache
constexpr std::uint64_t kPageBytes = 4 * kKiB;

}  // namespace

Ring::Ring(std::uint64_t bytes) {
  const std::uint64_t mapped = align_up(bytes, kHugePageBytes) + kHugePageBytes;
  void* address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    throw Error(Errc::kMemory,
                fmt::format("cannot take {} of host memory for the loader's buffers: {}; lower "
                            "--ring-bytes",
                            format_bytes(bytes), errno_text(errno)));
  }
  mapping_ = Mapping(address, mapped);
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  bytes_ = {mapping_.data() + (align_up(begin, kHugePageBytes) - begin), bytes};
  madvise(bytes_.data(), bytes_.size(), MADV_HUGEPAGE);  // advice only
}

void touch_pages(std::span<std::byte> bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += kPageBytes) {
    *static_cast<volatile std::byte*>(&bytes[at]) = std::byte{0};
  }
}

RingShape shape_ring(std::uint64_t ring_bytes, int threads, int depth,
                     std::uint64_t max_chunk_bytes) {
  const auto parts = static_cast<std::uint64_t>(depth) + 1;  // the chunks and a scratch area
  const std::uint64_t smallest = parts * kMinChunkBytes;
  if (ring_bytes < smallest) {
    throw Error(Errc::kUsage, fmt::format("--ring-bytes {} is too small: the loader needs at least "
                                          "{} of host buffers",
                                          ring_bytes, format_bytes(smallest)));
  }
  const std::uint64_t most = std::min(static_cast<std::uint64_t>(threads), ring_bytes / smallest);
  const std::uint64_t share = ring_bytes / most / parts / kPageBytes * kPageBytes;
  const std::uint64_t chunk = std::min(share, max_chunk_bytes);
  return {static_cast<int>(most), chunk, std::min(chunk, kMaxScratchBytes)};
}

}  // namespace preload
