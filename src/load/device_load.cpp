// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/bytes.hpp"
#include "fill.hpp"
#include "load/device_placer.cuh"
#include "load/device_sums.cuh"
#include "load/load_job.hpp"
#include "load/ring.hpp"
#include "load/run_threads.hpp"
#include "memory/cuda_resources.cuh"
#include "memory/device.hpp"

namespace preload {

namespace {

// Copies of this size and more run at the link's speed: between two of them the copy engine rests
// for some microseconds. Rings of more than some tens of MiB leave the CPU's cache.
constexpr std::uint64_t kMaxBatchBytes = 16 * kMiB;
constexpr std::uint64_t kHotChunkBytes = 512 * kKiB;
constexpr std::uint64_t kColdChunkBytes = 4 * kMiB;  // what disks take well
constexpr std::uint64_t kStagingAlignment = 256;     // kernels that convert want whole elements
constexpr auto kTurn = std::chrono::milliseconds(20);

// A batch's host buffer, and how far its turn has come. The n-th batch that takes it waits until
// n batches before it have been copied.
struct Slot {
  std::span<std::byte> buffer;
  std::byte* staging = nullptr;  // on the GPU, for what does not go straight to its place
  Event copied;
  Event placed;
  std::atomic<std::uint32_t> to_read{0};  // chunks of the batch that are not read yet

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::uint64_t queued = 0;    // batches whose copies are queued
  std::uint64_t free_for = 0;  // batches that have left the buffer
};

// Threads fill a batch together; who reads its last chunk queues its copies, which run one after
// the other on one stream: copies on several streams would cost the copy engine a change of channel
// each. Placing, handing on and hashing run behind them on another.
class BatchLoad {
 public:
  BatchLoad(LoadJob& job, const BatchRingShape& shape, std::span<std::byte> ring)
      : job_(job),
        shape_(shape),
        list_(cut_into_chunks(job.work.reads.blocks, shape.chunk_bytes)),
        batches_(group_chunks(list_, shape.batch_bytes)),
        slots_(static_cast<std::size_t>(shape.slots)),
        sums_(job.work.reads.blocks.size(), job.work.reads.deliveries.size()),
        copies_(make_stream()),
        places_(make_stream()),
        placer_(job, sums_, places_.get()) {
    sums_.clear(places_.get());
    batch_of_.reserve(list_.chunks.size());
    for (std::uint32_t b = 0; b < batches_.batches.size(); ++b) {
      batch_of_.insert(batch_of_.end(), batches_.batches[b].count, b);
      offset_of_.resize(batch_of_.size());
      std::uint64_t at = 0;
      for (std::uint32_t c = 0; c < batches_.batches[b].count; ++c) {
        offset_of_[batches_.batches[b].first + c] = at;
        at += list_.chunks[batches_.batches[b].first + c].bytes;
      }
    }
    const std::uint64_t staging = staging_bytes();
    if (staging > 0) {
      staging_ = allocate_device(slots_.size() * staging, "allocating the loader's staging area");
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      slots_[i].buffer = ring.subspan(i * shape.batch_bytes, shape.batch_bytes);
      if (staging_) {
        slots_[i].staging = static_cast<std::byte*>(staging_.get()) + i * staging;
      }
      slots_[i].copied = make_event();
      slots_[i].placed = make_event();
      if (i < batches_.batches.size()) slots_[i].to_read = batches_.batches[i].count;
    }
    scratch_ = ring.subspan(slots_.size() * shape.batch_bytes);
  }

  // One of the threads.
  void run(int index, const std::atomic<bool>& stop) {
    const auto scratch =
        scratch_.subspan(static_cast<unsigned>(index) * shape_.scratch_bytes, shape_.scratch_bytes);
    while (!stop.load(std::memory_order_relaxed)) {
      const auto next = job_.next_chunk();
      if (!next) return;
      const std::size_t chunk = *next;
      const std::uint32_t batch = batch_of_[chunk];
      Slot& slot = slots_[batch % slots_.size()];
      if (!wait_for_turn(slot, batch, stop)) return;
      read(list_.chunks[chunk], slot.buffer.subspan(offset_of_[chunk]), scratch);
      if (slot.to_read.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        queue(batches_.batches[batch], slot);
      }
    }
  }

  // All that was read is on the GPU.
  void drain() { check_cuda(cudaStreamSynchronize(copies_.get()), "copying to the GPU"); }
  LoadSums sums() {
    drain();
    return sums_.download(places_.get());
  }

  std::size_t chunks() const noexcept { return list_.chunks.size(); }
  // Whole batches from chunk `first` on: where they end, and their bytes.
  std::pair<std::size_t, std::uint64_t> end_of(std::size_t first, std::uint64_t bytes) const {
    std::uint64_t taken = 0;
    while (first < list_.chunks.size() && taken < bytes) {
      const Batch& batch = batches_.batches[batch_of_[first]];
      taken += batch.placed.bytes;
      first = batch.first + batch.count;
    }
    return {first, taken};
  }
  cudaStream_t stream() const noexcept { return copies_.get(); }

 private:
  // False when the load was stopped meanwhile.
  bool wait_for_turn(Slot& slot, std::uint32_t batch, const std::atomic<bool>& stop) {
    const std::uint64_t turn = batch / slots_.size();
    std::unique_lock lock(slot.mutex);
    while (slot.queued < turn) {
      job_.cancel.check();
      if (stop.load(std::memory_order_relaxed)) return false;
      slot.changed.wait_for(lock, kTurn);
    }
    job_.cancel.check();
    if (slot.free_for >= turn) return true;
    check_cuda(cudaEventSynchronize(slot.copied.get()), "waiting for a copy to the GPU");
    slot.free_for = turn;
    slot.to_read = batches_.batches[batch].count;
    return true;
  }

  // Fills `buffer` with the chunk's pieces, packed; what continues in the file is one read.
  void read(const Chunk& chunk, std::span<std::byte> buffer, std::span<std::byte> scratch) {
    const std::uint32_t end = chunk.first + chunk.count;
    for (std::uint32_t i = chunk.first; i < end;) {
      const Piece& piece = list_.pieces[i];
      const ReadBlock& block = job_.block_of(piece);
      std::uint64_t bytes = piece.total_bytes();
      std::uint32_t next = i + 1;
      if (is_file_run(block, piece)) {
        const std::uint64_t first = file_offset(block, piece);
        for (; next < end; ++next) {
          const Piece& other = list_.pieces[next];
          const ReadBlock& of_other = job_.block_of(other);
          if (of_other.file != block.file || !is_file_run(of_other, other) ||
              file_offset(of_other, other) != first + bytes) {
            break;
          }
          bytes += other.total_bytes();
        }
        job_.files.read(block.file, first, buffer.first(bytes));
      } else {
        read_rows(job_.files, block, piece, buffer.first(bytes), scratch);
      }
      buffer = buffer.subspan(bytes);
      i = next;
    }
  }

  void queue(const Batch& batch, Slot& slot) {
    {
      const std::lock_guard lock(queue_mutex_);
      // The staging area's last user is done with it before it is written again.
      if (staging_) {
        check_cuda(cudaStreamWaitEvent(copies_.get(), slot.placed.get(), 0),
                   "ordering copies after placements");
      }
      const std::byte* packed = slot.buffer.data();
      std::byte* staged = slot.staging;
      landed_.clear();
      for (std::uint32_t i = 0; i < batch.placed.count; ++i) {
        const Piece& piece = batches_.pieces[batch.placed.first + i];
        const std::uint64_t bytes = piece.total_bytes();
        std::byte* const home = home_of(piece);
        landed_.push_back(home != nullptr ? home : staged);
        check_cuda(
            cudaMemcpyAsync(landed_.back(), packed, bytes, cudaMemcpyHostToDevice, copies_.get()),
            "copying to the GPU");
        packed += bytes;
        if (home == nullptr) staged += align_up(bytes, kStagingAlignment);
      }
      check_cuda(cudaEventRecord(slot.copied.get(), copies_.get()), "marking a copy to the GPU");
      check_cuda(cudaStreamWaitEvent(places_.get(), slot.copied.get(), 0),
                 "ordering placements after copies");
      for (std::uint32_t i = 0; i < batch.placed.count; ++i) {
        placer_.place(batches_.pieces[batch.placed.first + i], landed_[i]);
      }
      if (staging_) {
        check_cuda(cudaEventRecord(slot.placed.get(), places_.get()), "marking placements");
      }
    }
    {
      const std::lock_guard lock(slot.mutex);
      ++slot.queued;
    }
    slot.changed.notify_all();
    job_.progress.bytes.fetch_add(batch.placed.bytes, std::memory_order_relaxed);
  }

  // Where in this rank's own memory a piece goes as it is; null when it must be placed.
  std::byte* home_of(const Piece& piece) const noexcept {
    for (const Delivery& delivery : job_.work.reads.deliveries_of(job_.block_of(piece))) {
      if (!job_.is_own(delivery)) continue;
      const auto share = share_of(piece, delivery);
      if (share && goes_straight(piece, delivery, *share)) {
        return job_.address(delivery, share->slab_offset);
      }
    }
    return nullptr;
  }

  // Of the batch that needs most.
  std::uint64_t staging_bytes() const noexcept {
    std::uint64_t most = 0;
    for (const Batch& batch : batches_.batches) {
      std::uint64_t bytes = 0;
      for (std::uint32_t i = 0; i < batch.placed.count; ++i) {
        const Piece& piece = batches_.pieces[batch.placed.first + i];
        if (home_of(piece) == nullptr) bytes += align_up(piece.total_bytes(), kStagingAlignment);
      }
      most = std::max(most, bytes);
    }
    return most;
  }

  LoadJob& job_;
  const BatchRingShape shape_;
  const ChunkList list_;
  const BatchList batches_;
  std::vector<std::uint32_t> batch_of_;   // by chunk
  std::vector<std::uint64_t> offset_of_;  // by chunk: in its batch's buffer
  DeviceMemory staging_;
  std::vector<Slot> slots_;
  std::span<std::byte> scratch_;
  std::mutex queue_mutex_;          // of the streams and `landed_`
  std::vector<std::byte*> landed_;  // where the pieces of the batch in hand lie on the GPU
  DeviceSums sums_;
  // Last: destroyed first, which waits for what uses the others.
  Stream copies_;
  Stream places_;
  const DevicePlacer placer_;
};

void queue_fills(const LoadJob& job, cudaStream_t stream) {
  for (const FillOp& fill : job.work.plan.fills) {
    const std::uint64_t word = fill_word(fill.element_bits, job.work.program.tensors[fill.tensor]);
    check_launch(
        kernels::fill_pattern(job.work.address(fill.tensor),
                              job.work.plan.slabs.placements[fill.tensor].bytes, word, stream),
        "filling tensors on the GPU");
  }
}

}  // namespace

LoadSums load_on_device(LoadJob& job) {
  set_device(job.options.device);
  const BatchRingShape shape =
      shape_batch_ring(job.options.ring_bytes, job.most_threads(), kMaxBatchBytes,
                       job.files.reads_past_the_cache() ? kColdChunkBytes : kHotChunkBytes);
  const Ring ring(shape.ring_bytes());
  Pinned pinned;
  BatchLoad batches(job, shape, ring.bytes());
  queue_fills(job, batches.stream());
  const auto threads = static_cast<int>(
      std::clamp<std::size_t>(batches.chunks(), 1, static_cast<std::size_t>(shape.threads)));
  const std::uint64_t part = ring.bytes().size() / static_cast<unsigned>(threads);
  run_threads(threads, [&](int index, const std::atomic<bool>&) {
    const std::size_t begin = static_cast<unsigned>(index) * part;
    touch_pages(index + 1 == threads ? ring.bytes().subspan(begin)
                                     : ring.bytes().subspan(begin, part));
  });
  pinned = pin(ring.bytes().data(), ring.bytes().size());
  check_cuda(cudaStreamSynchronize(batches.stream()), "filling tensors on the GPU");
  if (job.options.before_reading) job.options.before_reading();

  job.first_read = std::chrono::steady_clock::now();
  job.run_phases(
      batches.chunks(),
      [&](std::size_t first, std::uint64_t bytes) { return batches.end_of(first, bytes); },
      [&](int wanted) {
        run_threads(std::min(wanted, threads), [&](int index, const std::atomic<bool>& stop) {
          set_device(job.options.device);
          batches.run(index, stop);
        });
        batches.drain();
      });
  return batches.sums();
}

}  // namespace preload
