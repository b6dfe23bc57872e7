// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <thread>

#include "load/device_placer.cuh"
#include "load/load_job.hpp"
#include "load/ring.hpp"
#include "load/round_slots.hpp"
#include "load/round_work.hpp"
#include "memory/device.hpp"
#include "place_rows.hpp"

namespace preload {

namespace {

constexpr auto kPoll = std::chrono::microseconds(50);

// Where a round's bytes lie on the GPU: what was read, what is sent, what is received.
struct Stage {
  std::byte* landed = nullptr;
  std::byte* outgoing = nullptr;
  std::byte* incoming = nullptr;
  Event copied;
  Event done;
};

// Threads read chunks ahead into pinned memory; the calling thread copies them to the GPU and
// queues what is to be placed, packed, sent, received and placed, round after round on one stream.
class DeviceRounds {
 public:
  explicit DeviceRounds(LoadJob& job)
      : job_(job),
        rounds_(job),
        chunk_bytes_(align_up(rounds_.out.most_aligned_bytes, kAlignment)),
        slot_bytes_(chunk_bytes_ + job.work.messages->round_bytes),
        slot_count_(std::clamp<std::uint64_t>(
            job.options.ring_bytes / slot_bytes_, 1,
            static_cast<std::uint64_t>(job.tunings.front().threads) + kStages)),
        slots_(slot_count_, rounds_.out.list.chunks.size()),
        ring_(slot_count_ * slot_bytes_),
        sums_(job.work.reads.blocks.size(), job.work.reads.deliveries.size()),
        copies_(make_stream()),
        main_(make_stream()),
        placer_(job, sums_, main_.get()) {
    sums_.clear(main_.get());
    const auto aligned = [](std::uint64_t bytes) { return align_up(bytes, kAlignment); };
    const std::uint64_t each =
        chunk_bytes_ + aligned(rounds_.out.most_bytes) + aligned(rounds_.most_incoming_bytes);
    staging_ = allocate_device(kStages * each, "allocating the staging area for what ranks send");
    auto* at = static_cast<std::byte*>(staging_.get());
    for (Stage& stage : stages_) {
      stage = {at, at + chunk_bytes_, at + chunk_bytes_ + aligned(rounds_.out.most_bytes),
               make_event(), make_event()};
      at += each;
    }
    pinned_ = pin(ring_.bytes().data(), ring_.bytes().size());
  }

  LoadSums run() {
    try {
      run_rounds(
          job_, rounds_, slot_count_, [&](const std::atomic<bool>& stop) { read(stop); },
          [&](const std::atomic<bool>& stop) { exchange(stop); });
    } catch (...) {
      job_.work.messages->exchange.abort();
      throw;
    }
    return sums_.download(main_.get());
  }

 private:
  static constexpr std::size_t kStages = 2;  // one is sent while the next is copied
  static constexpr std::uint64_t kAlignment = 256;

  // A chunk, its pieces aligned, and what is gathered for it.
  std::span<std::byte> slot(std::size_t chunk) const noexcept {
    return ring_.bytes().subspan(slots_.slot_of(chunk) * slot_bytes_, slot_bytes_);
  }

  void read(const std::atomic<bool>& stop) {
    while (const auto number = job_.next_chunk()) {
      if (!slots_.wait_free(*number, job_.cancel, stop)) return;
      const Chunk& chunk = rounds_.out.list.chunks[*number];
      std::span<std::byte> buffer = slot(*number).first(chunk_bytes_);
      for (std::uint32_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
        const Piece& piece = rounds_.out.list.pieces[i];
        read_rows(job_.files, job_.block_of(piece), piece, buffer.first(piece.total_bytes()),
                  slot(*number).subspan(chunk_bytes_));
        buffer = buffer.subspan(align_up(piece.total_bytes(), kElementAlignment));
      }
      job_.progress.bytes.fetch_add(chunk.bytes, std::memory_order_relaxed);
      slots_.set_ready(*number);
    }
  }

  void exchange(const std::atomic<bool>& stop) {
    for (std::size_t round = 0; round < rounds_.count; ++round) {
      Stage& stage = stages_[round % kStages];
      // Also keeps what is queued short, so that what goes wrong on the way is seen soon.
      if (round >= kStages && !wait_for(stage.done, stop)) return;
      if (round < rounds_.out.parcels.size()) {
        if (!slots_.wait_ready(round, job_.cancel, stop)) return;
        copy(round, stage);
        if (!wait_for(stage.copied, stop)) return;
        slots_.set_left(round);
        place_and_pack(round, stage);
      }
      rounds_.exchange(job_.work.messages->exchange, round, stage.outgoing, stage.incoming,
                       main_.get(), stop);
      unpack(round, stage);
      check_cuda(cudaEventRecord(stage.done.get(), main_.get()), "marking the end of a round");
    }
    for (std::size_t i = 0; i < std::min<std::size_t>(kStages, rounds_.count); ++i) {
      if (!wait_for(stages_[i].done, stop)) return;
    }
  }

  // False when `stop` was set meanwhile. Polls: a peer that is gone never lets the GPU finish.
  bool wait_for(const Event& event, const std::atomic<bool>& stop) const {
    for (;;) {
      const cudaError_t state = cudaEventQuery(event.get());
      if (state == cudaSuccess) return true;
      if (state != cudaErrorNotReady) check_cuda(state, "sending between GPUs");
      job_.cancel.check();
      job_.work.messages->exchange.check();
      if (stop.load(std::memory_order_relaxed)) return false;
      std::this_thread::sleep_for(kPoll);
    }
  }

  void copy(std::size_t round, Stage& stage) const {
    check_cuda(cudaMemcpyAsync(stage.landed, slot(round).data(), chunk_bytes_,
                               cudaMemcpyHostToDevice, copies_.get()),
               "copying to the GPU");
    check_cuda(cudaEventRecord(stage.copied.get(), copies_.get()), "marking a copy to the GPU");
  }

  void place_and_pack(std::size_t round, const Stage& stage) const {
    const Chunk& chunk = rounds_.out.list.chunks[round];
    std::vector<std::byte*> landed;  // by piece of the chunk
    std::byte* at = stage.landed;
    for (std::uint32_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      const Piece& piece = rounds_.out.list.pieces[i];
      placer_.place(piece, at);
      landed.push_back(at);
      at += align_up(piece.total_bytes(), kElementAlignment);
    }
    for (const Parcel& parcel : rounds_.out.parcels[round]) {
      std::byte* const message = stage.outgoing + parcel.offset;
      const auto placed = [&](std::size_t i) {
        return DeviceRows{message + parcel.offsets[i], parcel.sources[i].share.target_bytes};
      };
      for (std::size_t i = 0; i < parcel.sources.size(); ++i) {
        const SegmentSource& source = parcel.sources[i];
        const Piece& piece = rounds_.out.list.pieces[source.piece];
        placer_.copy(piece, job_.work.reads.deliveries[source.delivery], source.share,
                     landed[source.piece - chunk.first], placed(i));
        placer_.hash(piece, source.delivery, source.share, placed(i));
      }
      for (std::size_t i = 0; i < parcel.repeats.size(); ++i) {
        const SegmentSource& source = parcel.repeats[i];
        placer_.hash(rounds_.out.list.pieces[source.piece], source.delivery, source.share,
                     placed(i % parcel.sources.size()));
      }
    }
  }

  void unpack(std::size_t round, const Stage& stage) const {
    rounds_.for_each_segment(
        round, stage.incoming, [&](const Segment& segment, const std::byte* bytes) {
          check_launch(
              kernels::copy_rows({bytes, segment.row_bytes,
                                  job_.work.memory.address(segment.slab) + segment.slab_offset,
                                  segment.target_stride, segment.rows},
                                 segment.row_bytes, main_.get()),
              "placing what was received");
        });
  }

  LoadJob& job_;
  const RoundWork rounds_;
  const std::uint64_t chunk_bytes_;
  const std::uint64_t slot_bytes_;
  const std::size_t slot_count_;
  RoundSlots slots_;
  const Ring ring_;
  Pinned pinned_;
  DeviceSums sums_;
  DeviceMemory staging_;
  // Last: destroyed first, which waits for what uses the others.
  std::array<Stage, kStages> stages_;
  Stream copies_;
  Stream main_;
  const DevicePlacer placer_;
};

}  // namespace

LoadSums share_on_device(LoadJob& job) {
  set_device(job.options.device);
  return DeviceRounds(job).run();
}

}  // namespace preload
