// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "base/bytes.hpp"
#include "fill.hpp"
#include "hash.hpp"
#include "load/load_job.hpp"
#include "load/ring.hpp"
#include "load/run_threads.hpp"
#include "memory/cuda_resources.cuh"
#include "memory/device.hpp"
#include "place_rows.hpp"

namespace preload {

namespace {

constexpr int kDepth = 3;  // chunks in flight a thread: one read, one copied, one to spare
constexpr std::uint64_t kMaxChunkBytes = 4 * kMiB;

void check_launch(int result, const char* what) {
  check_cuda(static_cast<cudaError_t>(result), what);
}

kernels::Float float_kind(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return kernels::Float::kF16;
    case DType::kBF16:
      return kernels::Float::kBF16;
    case DType::kF32:
      return kernels::Float::kF32;
    case DType::kF64:
      return kernels::Float::kF64;
    default:
      throw Error(Errc::kInternal, "a type that values are not converted from or to");
  }
}

// The hashes' accumulators in device memory: per op its source's and its served one, then one per
// tensor.
class DeviceSums {
 public:
  DeviceSums(std::size_t ops, std::size_t tensors, cudaStream_t stream)
      : ops_(ops), tensors_(tensors) {
    memory_ = allocate_device(count() * sizeof(Hash128), "allocating the hashes' accumulators");
    check_cuda(cudaMemsetAsync(memory_.get(), 0, count() * sizeof(Hash128), stream),
               "clearing the hashes' accumulators");
  }
  std::uint64_t* source(std::size_t op) const noexcept { return at(2 * op); }
  std::uint64_t* served(std::size_t op) const noexcept { return at(2 * op + 1); }
  std::uint64_t* after_load(std::size_t tensor) const noexcept { return at(2 * ops_ + tensor); }

  LoadSums download(cudaStream_t stream) const {
    std::vector<Hash128> all(count());
    check_cuda(cudaMemcpyAsync(all.data(), memory_.get(), all.size() * sizeof(Hash128),
                               cudaMemcpyDeviceToHost, stream),
               "reading the hashes");
    check_cuda(cudaStreamSynchronize(stream), "hashing on the GPU");
    LoadSums sums;
    for (std::size_t op = 0; op < ops_; ++op) {
      sums.source.push_back(all[2 * op]);
      sums.served.push_back(all[2 * op + 1]);
    }
    for (std::size_t t = 0; t < tensors_; ++t) sums.after_load.push_back(all[2 * ops_ + t]);
    return sums;
  }

 private:
  std::size_t count() const noexcept { return 2 * ops_ + tensors_ + 1; }  // never empty
  std::uint64_t* at(std::size_t index) const noexcept {
    return static_cast<std::uint64_t*>(memory_.get()) + 2 * index;
  }
  std::size_t ops_, tensors_;
  DeviceMemory memory_;
};
static_assert(sizeof(Hash128) == 16, "the accumulators are read as Hash128");

// One thread's part: reads chunks into pinned buffers and queues copies, conversions and hashes on
// a stream of its own.
class Worker {
 public:
  Worker(LoadJob& job, const DeviceSums& sums, const RingShape& shape, std::span<std::byte> share,
         bool needs_staging)
      : job_(job), sums_(sums), scratch_(share.last(shape.scratch_bytes)) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slots_[i] = {share.subspan(i * shape.chunk_bytes, shape.chunk_bytes), make_event()};
    }
    if (needs_staging) {
      staging_ = allocate_device(shape.chunk_bytes, "allocating the loader's staging area");
    }
    stream_ = make_stream();
    hash_stream_ = make_stream();
  }

  void run(const std::atomic<bool>& stop) {
    std::size_t turn = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      job_.cancel.check();
      const Chunk* const chunk = job_.next_chunk();
      if (chunk == nullptr) break;
      Slot& slot = slots_[turn++ % slots_.size()];
      // An event that was never recorded is complete.
      check_cuda(cudaEventSynchronize(slot.done.get()), "waiting for a copy to the GPU");
      read(*chunk, slot.buffer);
      queue(*chunk, slot.buffer);
      check_cuda(cudaEventRecord(slot.done.get(), stream_.get()), "marking a copy to the GPU");
      queue_hashes(*chunk, slot.done.get());
      job_.progress.bytes.fetch_add(chunk->bytes, std::memory_order_relaxed);
    }
    check_cuda(cudaStreamSynchronize(stream_.get()), "copying to the GPU");
    check_cuda(cudaStreamSynchronize(hash_stream_.get()), "hashing on the GPU");
  }

 private:
  struct Slot {
    std::span<std::byte> buffer;
    Event done;
  };

  const Piece& piece(std::uint32_t index) const { return job_.list.pieces[index]; }

  // Fills `buffer` with the chunk's pieces, packed; what continues in the file is one read.
  void read(const Chunk& chunk, std::span<std::byte> buffer) {
    const std::uint32_t end = chunk.first + chunk.count;
    for (std::uint32_t i = chunk.first; i < end;) {
      const CopyOp& op = job_.op_of(piece(i));
      std::uint64_t bytes = piece(i).total_bytes();
      std::uint32_t next = i + 1;
      if (is_file_run(op, piece(i))) {
        const std::uint64_t first = file_offset(op, piece(i));
        for (; next < end; ++next) {
          const CopyOp& other = job_.op_of(piece(next));
          if (other.file != op.file || !is_file_run(other, piece(next)) ||
              file_offset(other, piece(next)) != first + bytes) {
            break;
          }
          bytes += piece(next).total_bytes();
        }
        job_.files.read(op.file, first, buffer.first(bytes));
      } else {
        read_rows(job_.files, op, piece(i), buffer.first(bytes), scratch_);
      }
      buffer = buffer.subspan(bytes);
      i = next;
    }
  }

  void queue(const Chunk& chunk, std::span<std::byte> buffer) {
    for (std::uint32_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      queue(piece(i), buffer.data());
      buffer = buffer.subspan(piece(i).total_bytes());
    }
  }

  void queue(const Piece& piece, const std::byte* packed) {
    const CopyOp& op = job_.op_of(piece);
    std::byte* const target = job_.target_of(piece);
    const bool straight = job_.goes_straight(piece);
    // One staging area a thread is enough: the stream keeps its uses apart.
    void* const landed = straight ? target : staging_.get();
    check_cuda(
        cudaMemcpyAsync(landed, packed, piece.total_bytes(), cudaMemcpyHostToDevice, stream_.get()),
        "copying to the GPU");
    if (straight) return;
    place(op, piece, landed, target);
    hash(op, piece, landed, target, stream_.get());  // before the next piece takes the staging area
  }

  // What went straight to its place is hashed there, on a stream of its own: no copy waits for it.
  void queue_hashes(const Chunk& chunk, cudaEvent_t copied) {
    check_cuda(cudaStreamWaitEvent(hash_stream_.get(), copied, 0), "ordering hashes after copies");
    for (std::uint32_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      if (!job_.goes_straight(piece(i))) continue;
      const std::byte* const target = job_.target_of(piece(i));
      hash(job_.op_of(piece(i)), piece(i), target, target, hash_stream_.get());
    }
  }

  void place(const CopyOp& op, const Piece& piece, const void* staged, void* target) {
    const kernels::RowCopy copy{staged, piece.bytes, target, op.target_stride, piece.rows};
    check_launch(op.converts()
                     ? kernels::convert_rows(copy, piece.bytes / (dtype_bits(op.from) / 8),
                                             float_kind(op.from), float_kind(op.to), stream_.get())
                     : kernels::copy_rows(copy, piece.bytes, stream_.get()),
                 "placing rows on the GPU");
  }

  void hash(const CopyOp& op, const Piece& piece, const void* landed, const void* target,
            cudaStream_t stream) {
    kernels::HashRegion region{
        landed, piece.rows, piece.bytes, piece.bytes, source_offset(op, piece), op.file_stride};
    check_launch(kernels::hash_rows(region, sums_.source(piece.op), stream), "hashing on the GPU");
    if (!job_.hashes_served(op) || hashes_alike(op)) return;
    if (op.converts()) {
      region.data = target;
      region.row_bytes = target_bytes(op, piece);
      region.memory_stride = op.target_stride;
    }
    region.offset_bytes = target_offset(op, piece);
    region.index_stride = op.target_stride;
    check_launch(kernels::hash_rows(region, sums_.served(piece.op), stream), "hashing on the GPU");
  }

  LoadJob& job_;
  const DeviceSums& sums_;
  std::array<Slot, kDepth> slots_;
  std::span<std::byte> scratch_;
  DeviceMemory staging_;
  Stream hash_stream_;
  Stream stream_;  // last: destroyed first, which waits for what uses the others
};

void queue_fills(const LoadJob& job, cudaStream_t stream) {
  for (const FillOp& fill : job.plan.fills) {
    const std::uint64_t word = fill_word(fill.element_bits, job.program.tensors[fill.tensor]);
    check_launch(kernels::fill_pattern(job.address(fill.tensor),
                                       job.plan.slabs.placements[fill.tensor].bytes, word, stream),
                 "filling tensors on the GPU");
  }
}

void hash_after_load(const LoadJob& job, const DeviceSums& sums, cudaStream_t stream) {
  for (std::size_t t = 0; t < job.program.tensors.size(); ++t) {
    if (job.served_from[t] != ServedHash::kAfterLoad) continue;
    job.cancel.check();
    const std::byte* const data = job.address(static_cast<std::uint32_t>(t));
    for_each_served_rows(job.program.tensors[t], [&](const ServedRows& rows) {
      check_launch(kernels::hash_rows({data + rows.memory_offset, rows.rows, rows.row_bytes,
                                       rows.memory_stride, rows.index_offset, rows.index_stride},
                                      sums.after_load(t), stream),
                   "hashing on the GPU");
    });
  }
}

}  // namespace

LoadSums load_on_device(LoadJob& job, const LoadOptions& options) {
  set_device(options.device);
  const RingShape shape = shape_ring(
      options.ring_bytes, options.threads, kDepth,
      options.chunk_bytes != 0 ? std::min(options.chunk_bytes, kMaxChunkBytes) : kMaxChunkBytes);
  job.list = cut_into_chunks(job.ops, shape.chunk_bytes);
  const auto chunks = static_cast<std::uint64_t>(job.list.chunks.size());
  const auto threads = std::max<std::uint64_t>(
      1, std::min<std::uint64_t>(chunks, static_cast<unsigned>(shape.threads)));
  const std::uint64_t share = kDepth * shape.chunk_bytes + shape.scratch_bytes;
  const bool needs_staging =
      std::any_of(job.list.pieces.begin(), job.list.pieces.end(),
                  [&](const Piece& piece) { return !job.goes_straight(piece); });

  const Ring ring(share * threads);
  const auto share_of = [&](int index) {
    return ring.bytes().subspan(static_cast<unsigned>(index) * share, share);
  };
  Pinned pinned;
  const Stream stream = make_stream();
  const DeviceSums sums(job.ops.size(), job.program.tensors.size(), stream.get());
  queue_fills(job, stream.get());
  run_threads(static_cast<int>(threads),
              [&](int index, const std::atomic<bool>&) { touch_pages(share_of(index)); });
  pinned = pin(ring.bytes().data(), ring.bytes().size());
  check_cuda(cudaStreamSynchronize(stream.get()), "filling tensors on the GPU");

  job.first_read = std::chrono::steady_clock::now();
  run_threads(static_cast<int>(threads), [&](int index, const std::atomic<bool>& stop) {
    set_device(options.device);
    Worker(job, sums, shape, share_of(index), needs_staging).run(stop);
  });
  hash_after_load(job, sums, stream.get());
  return sums.download(stream.get());
}

}  // namespace preload
