// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/bytes.hpp"
#include "load/host_rows.hpp"
#include "load/load_job.hpp"
#include "load/ring.hpp"
#include "load/run_threads.hpp"

namespace preload {

namespace {

// Small enough that a chunk is still in the core's cache when it is hashed.
constexpr std::uint64_t kMaxChunkBytes = kMiB;

void load_piece(LoadJob& job, const Piece& piece, std::span<std::byte> buffer,
                std::span<std::byte> scratch, LoadSums& sums) {
  const ReadBlock& block = job.block_of(piece);
  const auto deliveries = job.work.reads.deliveries_of(block);
  // The first that takes the bytes as they are is read into directly: no other copy is made of
  // them.
  std::span<std::byte> packed = buffer.first(piece.total_bytes());
  const Delivery* home = nullptr;
  for (const Delivery& delivery : deliveries) {
    const auto share = share_of(piece, delivery);
    if (!share || !goes_straight(piece, delivery, *share)) continue;
    home = &delivery;
    packed = {job.address(delivery, share->slab_offset), piece.total_bytes()};
    break;
  }
  read_rows(job.files, block, piece, packed, scratch);
  sums.source[piece.block] += hash_rows(packed.data(), piece.rows, piece.bytes, piece.bytes,
                                        source_offset(block, piece), block.file_stride);
  for (const Delivery& delivery : deliveries) {
    const auto share = share_of(piece, delivery);
    if (!share) continue;
    const HostRows placed{job.address(delivery, share->slab_offset), delivery.target_stride,
                          piece.rows};
    if (&delivery != home) {
      place_share(delivery, *share, packed.data() + share->begin, piece.bytes, placed);
    }
    if (delivery.hashed && !hashes_alike(block, delivery)) {
      const auto index = static_cast<std::size_t>(&delivery - job.work.reads.deliveries.data());
      sums.served[index] += hash_share(delivery, *share, placed);
    }
  }
}

void fill(LoadJob& job) {
  const LoadPlan& plan = job.work.plan;
  for (const FillOp& fill : plan.fills) {
    if (fill.element_bits == 0) continue;  // fresh memory is zero
    const std::uint64_t word = fill_word(fill.element_bits, job.work.program.tensors[fill.tensor]);
    std::byte* const target = job.work.address(fill.tensor);
    const std::uint64_t bytes = plan.slabs.placements[fill.tensor].bytes;
    for (std::uint64_t at = 0; at < bytes; at += sizeof word) {
      std::memcpy(target + at, &word, std::min<std::uint64_t>(sizeof word, bytes - at));
    }
  }
}

void add(std::vector<Hash128>& sums, const std::vector<Hash128>& more) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
}

}  // namespace

LoadSums load_on_host(LoadJob& job) {
  const ReadPlan& reads = job.work.reads;
  const RingShape shape =
      shape_host_ring(job.options.ring_bytes, job.most_threads(), kMaxChunkBytes);
  const ChunkList list = cut_into_chunks(reads.blocks, shape.chunk_bytes);
  const int most = static_cast<int>(std::max<std::uint64_t>(
      1, std::min<std::uint64_t>(list.chunks.size(), static_cast<unsigned>(shape.threads))));
  const std::uint64_t share = shape.chunk_bytes + shape.scratch_bytes;
  const Ring ring(share * static_cast<unsigned>(most));

  fill(job);
  if (job.options.before_reading) job.options.before_reading();
  const LoadSums none{std::vector<Hash128>(reads.blocks.size()),
                      std::vector<Hash128>(reads.deliveries.size())};
  LoadSums sums = none;
  std::mutex mutex;  // of the sums
  job.first_read = std::chrono::steady_clock::now();
  const auto read = [&](int index, const std::atomic<bool>& stop) {
    const auto mine = ring.bytes().subspan(static_cast<unsigned>(index) * share, share);
    LoadSums own = none;
    while (!stop.load(std::memory_order_relaxed)) {
      job.cancel.check();
      const auto next = job.next_chunk();
      if (!next) break;
      const Chunk& chunk = list.chunks[*next];
      for (std::uint32_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
        load_piece(job, list.pieces[i], mine.first(shape.chunk_bytes),
                   mine.subspan(shape.chunk_bytes), own);
      }
      job.progress.bytes.fetch_add(chunk.bytes, std::memory_order_relaxed);
    }
    const std::lock_guard lock(mutex);
    add(sums.source, own.source);
    add(sums.served, own.served);
  };
  const auto end_of = [&](std::size_t first, std::uint64_t bytes) {
    std::uint64_t taken = 0;
    while (first < list.chunks.size() && taken < bytes) taken += list.chunks[first++].bytes;
    return std::pair(first, taken);
  };
  job.run_phases(list.chunks.size(), end_of,
                 [&](int threads) { run_threads(std::min(threads, most), read); });
  return sums;
}

std::vector<Hash128> hash_host_tensors(const LoadWork& work,
                                       const std::vector<std::uint32_t>& tensors, int threads,
                                       const Cancel& cancel) {
  std::vector<Hash128> hashes(tensors.size());
  std::atomic<std::size_t> next{0};
  const int count = static_cast<int>(
      std::min<std::size_t>(tensors.size(), static_cast<std::size_t>(std::max(threads, 1))));
  run_threads(count, [&](int, const std::atomic<bool>& stop) {
    for (std::size_t i; !stop.load() && (i = next++) < tensors.size();) {
      cancel.check();
      const std::byte* const data = work.address(tensors[i]);
      for_each_served_rows(work.program.tensors[tensors[i]], [&](const ServedRows& rows) {
        hashes[i] += hash_rows(data + rows.memory_offset, rows.rows, rows.row_bytes,
                               rows.memory_stride, rows.index_offset, rows.index_stride);
      });
    }
  });
  return hashes;
}

}  // namespace preload
