// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "load/convert_rows.hpp"
#include "load/load_job.hpp"
#include "load/ring.hpp"
#include "load/run_threads.hpp"

namespace preload {

namespace {

// Small enough that a chunk is still in the core's cache when it is hashed.
constexpr std::uint64_t kMaxChunkBytes = kMiB;

struct PieceSums {
  Hash128 source;
  Hash128 served;
};

// Rows of host memory that lie `memory_stride` apart.
Hash128 hash_source(const CopyOp& op, const Piece& piece, const std::byte* packed) {
  return hash_rows(packed, piece.rows, piece.bytes, piece.bytes, source_offset(op, piece),
                   op.file_stride);
}

Hash128 hash_target(const CopyOp& op, const Piece& piece, const std::byte* target) {
  const std::uint64_t row_bytes = target_bytes(op, piece);
  const std::uint64_t stride = piece.rows == 1 ? row_bytes : op.target_stride;
  return hash_rows(target, piece.rows, row_bytes, stride, target_offset(op, piece), stride);
}

// Spreads packed source rows to their places.
void place(const CopyOp& op, const Piece& piece, const std::byte* packed, std::byte* target) {
  if (op.converts()) {
    convert_rows({packed, piece.bytes, target, op.target_stride, piece.rows,
                  piece.bytes / (dtype_bits(op.from) / 8)},
                 op.from, op.to);
    return;
  }
  for (std::uint64_t row = 0; row < piece.rows; ++row) {
    std::memcpy(target + row * op.target_stride, packed + row * piece.bytes, piece.bytes);
  }
}

PieceSums load_piece(LoadJob& job, const Piece& piece, std::span<std::byte> buffer,
                     std::span<std::byte> scratch) {
  const CopyOp& op = job.op_of(piece);
  std::byte* const target = job.target_of(piece);
  const bool straight = job.goes_straight(piece);
  const std::span<std::byte> packed =
      straight ? std::span(target, piece.total_bytes()) : buffer.first(piece.total_bytes());
  read_rows(job.files, op, piece, packed, scratch);
  PieceSums sums{hash_source(op, piece, packed.data()), {}};
  if (!straight) place(op, piece, packed.data(), target);
  if (job.hashes_served(op) && !hashes_alike(op)) sums.served = hash_target(op, piece, target);
  return sums;
}

void fill(LoadJob& job) {
  for (const FillOp& fill : job.plan.fills) {
    if (fill.element_bits == 0) continue;  // fresh memory is zero
    const std::uint64_t word = fill_word(fill.element_bits, job.program.tensors[fill.tensor]);
    std::byte* const target = job.address(fill.tensor);
    const std::uint64_t bytes = job.plan.slabs.placements[fill.tensor].bytes;
    for (std::uint64_t at = 0; at < bytes; at += sizeof word) {
      std::memcpy(target + at, &word, std::min<std::uint64_t>(sizeof word, bytes - at));
    }
  }
}

}  // namespace

LoadSums load_on_host(LoadJob& job, const LoadOptions& options) {
  // One chunk at a time: the copy into the slab is the read itself.
  const RingShape shape = shape_ring(options.ring_bytes, options.threads, 1, kMaxChunkBytes);
  job.list = cut_into_chunks(job.ops, shape.chunk_bytes);
  const auto chunks = static_cast<std::uint64_t>(job.list.chunks.size());
  const int threads = static_cast<int>(std::max<std::uint64_t>(
      1, std::min<std::uint64_t>(chunks, static_cast<unsigned>(shape.threads))));
  const std::uint64_t share = shape.chunk_bytes + shape.scratch_bytes;
  const Ring ring(share * static_cast<unsigned>(threads));

  fill(job);
  std::vector<PieceSums> of_piece(job.list.pieces.size());
  job.first_read = std::chrono::steady_clock::now();
  run_threads(threads, [&](int index, const std::atomic<bool>& stop) {
    const auto mine = ring.bytes().subspan(static_cast<unsigned>(index) * share, share);
    while (!stop.load(std::memory_order_relaxed)) {
      job.cancel.check();
      const Chunk* const chunk = job.next_chunk();
      if (chunk == nullptr) return;
      for (std::uint32_t i = chunk->first; i < chunk->first + chunk->count; ++i) {
        of_piece[i] = load_piece(job, job.list.pieces[i], mine.first(shape.chunk_bytes),
                                 mine.subspan(shape.chunk_bytes));
      }
      job.progress.bytes.fetch_add(chunk->bytes, std::memory_order_relaxed);
    }
  });

  LoadSums sums;
  sums.source.resize(job.ops.size());
  sums.served.resize(job.ops.size());
  for (std::size_t i = 0; i < of_piece.size(); ++i) {
    sums.source[job.list.pieces[i].op] += of_piece[i].source;
    sums.served[job.list.pieces[i].op] += of_piece[i].served;
  }
  sums.after_load.resize(job.program.tensors.size());
  for (std::size_t t = 0; t < job.program.tensors.size(); ++t) {
    if (job.served_from[t] != ServedHash::kAfterLoad) continue;
    job.cancel.check();
    const std::byte* const data = job.address(static_cast<std::uint32_t>(t));
    for_each_served_rows(job.program.tensors[t], [&](const ServedRows& rows) {
      sums.after_load[t] += hash_rows(data + rows.memory_offset, rows.rows, rows.row_bytes,
                                      rows.memory_stride, rows.index_offset, rows.index_stride);
    });
  }
  return sums;
}

}  // namespace preload
