// SPDX-License-Identifier: Apache-2.0
#include "load/ring.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace preload {

namespace {

constexpr std::uint64_t kHugePageBytes = 2 * kMiB;
constexpr std::uint64_t kMinChunkBytes = 64 * kKiB;
constexpr std::uint64_t kMaxScratchBytes = kMiB;  // stays in a core's cache
constexpr std::uint64_t kPageBytes = 4 * kKiB;
constexpr std::uint64_t kGoodBatchBytes = 512 * kKiB;
constexpr int kSlotsInFlight = 3;  // batches that are copied, or about to be
constexpr int kLeastSlots = 4;

void check_ring(std::uint64_t ring_bytes, std::uint64_t smallest) {
  if (ring_bytes >= smallest) return;
  throw Error(Errc::kUsage, fmt::format("--ring-bytes {} is too small: the loader needs at least "
                                        "{} of host buffers",
                                        ring_bytes, format_bytes(smallest)));
}

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

RingShape shape_host_ring(std::uint64_t ring_bytes, int threads, std::uint64_t max_chunk_bytes) {
  constexpr std::uint64_t kParts = 2;  // a chunk and a scratch area
  const std::uint64_t smallest = kParts * kMinChunkBytes;
  check_ring(ring_bytes, smallest);
  const std::uint64_t most = std::min(static_cast<std::uint64_t>(threads), ring_bytes / smallest);
  const std::uint64_t share = ring_bytes / most / kParts / kPageBytes * kPageBytes;
  const std::uint64_t chunk = std::min(share, max_chunk_bytes);
  return {static_cast<int>(most), chunk, std::min(chunk, kMaxScratchBytes)};
}

std::uint64_t BatchRingShape::ring_bytes() const noexcept {
  return static_cast<std::uint64_t>(slots) * batch_bytes +
         static_cast<std::uint64_t>(threads) * scratch_bytes;
}

BatchRingShape shape_batch_ring(std::uint64_t ring_bytes, int threads,
                                std::uint64_t max_batch_bytes, std::uint64_t max_chunk_bytes) {
  check_ring(
      ring_bytes,
      BatchRingShape{1, kLeastSlots, kMinChunkBytes, kMinChunkBytes, kMinChunkBytes}.ring_bytes());
  const auto shape = [&](int count, std::uint64_t batch) {
    const std::uint64_t chunk = std::min(batch, max_chunk_bytes);
    const std::uint64_t in_reading = (static_cast<unsigned>(count) * chunk + batch - 1) / batch;
    const auto slots = static_cast<int>(in_reading) + kSlotsInFlight;
    return BatchRingShape{count, std::max(slots, kLeastSlots), batch, chunk,
                          std::min(chunk, kMaxScratchBytes)};
  };
  BatchRingShape best = shape(threads, max_batch_bytes);
  // Smaller batches first, down to what a copy engine still takes well; then fewer threads.
  while (best.ring_bytes() > ring_bytes && best.batch_bytes > kGoodBatchBytes) {
    best =
        shape(threads, std::max(best.batch_bytes / 2 / kPageBytes * kPageBytes, kGoodBatchBytes));
  }
  while (best.ring_bytes() > ring_bytes && best.threads > 1) {
    best = shape(best.threads - 1, best.batch_bytes);
  }
  while (best.ring_bytes() > ring_bytes) {
    best = shape(1, std::max(best.batch_bytes / 2 / kPageBytes * kPageBytes, kMinChunkBytes));
  }
  return best;
}

}  // namespace preload
