// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <mutex>

#include "load/host_rows.hpp"
#include "load/load_job.hpp"
#include "load/ring.hpp"
#include "load/round_slots.hpp"
#include "load/round_work.hpp"

namespace preload {

namespace {

// Threads read chunks ahead, place what they can write and pack the rest; the calling thread sends
// and receives round after round, and places what arrives.
class HostRounds {
 public:
  explicit HostRounds(LoadJob& job)
      : job_(job),
        rounds_(job),
        chunk_bytes_(job.work.messages->round_bytes),
        slot_bytes_(2 * chunk_bytes_ + rounds_.out.most_bytes),
        slot_count_(count_slots()),
        slots_(slot_count_, rounds_.out.list.chunks.size()),
        ring_(slot_count_ * slot_bytes_ + rounds_.most_incoming_bytes),
        sums_{std::vector<Hash128>(job.work.reads.blocks.size()),
              std::vector<Hash128>(job.work.reads.deliveries.size())} {}

  LoadSums run() {
    run_rounds(
        job_, rounds_, slot_count_, [&](const std::atomic<bool>& stop) { read(stop); },
        [&](const std::atomic<bool>& stop) { exchange(stop); });
    return std::move(sums_);
  }

 private:
  std::size_t count_slots() const noexcept {
    const std::uint64_t ring = job_.options.ring_bytes;
    const std::uint64_t left = ring - std::min(ring, rounds_.most_incoming_bytes);
    const auto wanted = static_cast<std::uint64_t>(job_.tunings.front().threads) + 1;
    return std::clamp<std::uint64_t>(left / slot_bytes_, 1, wanted);
  }
  // A chunk, what is gathered for it, and what is sent of it.
  std::span<std::byte> slot(std::size_t chunk) const noexcept {
    return ring_.bytes().subspan(slots_.slot_of(chunk) * slot_bytes_, slot_bytes_);
  }
  std::byte* outgoing(std::size_t chunk) const noexcept {
    return slot(chunk).data() + 2 * chunk_bytes_;
  }

  void read(const std::atomic<bool>& stop) {
    LoadSums own{std::vector<Hash128>(sums_.source.size()),
                 std::vector<Hash128>(sums_.served.size())};
    while (const auto chunk = job_.next_chunk()) {
      if (!slots_.wait_free(*chunk, job_.cancel, stop)) return;
      read_chunk(*chunk, own);
      job_.progress.bytes.fetch_add(rounds_.out.list.chunks[*chunk].bytes,
                                    std::memory_order_relaxed);
      slots_.set_ready(*chunk);
    }
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < own.source.size(); ++i) sums_.source[i] += own.source[i];
    for (std::size_t i = 0; i < own.served.size(); ++i) sums_.served[i] += own.served[i];
  }

  void read_chunk(std::size_t number, LoadSums& sums) {
    const Chunk& chunk = rounds_.out.list.chunks[number];
    std::span<std::byte> buffer = slot(number).first(chunk_bytes_);
    const std::span<std::byte> scratch = slot(number).subspan(chunk_bytes_, chunk_bytes_);
    std::vector<const std::byte*> packed;  // by piece of the chunk
    for (std::uint32_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      const Piece& piece = rounds_.out.list.pieces[i];
      read_rows(job_.files, job_.block_of(piece), piece, buffer.first(piece.total_bytes()),
                scratch);
      place(piece, buffer.data(), sums);
      packed.push_back(buffer.data());
      buffer = buffer.subspan(piece.total_bytes());
    }
    for (const Parcel& parcel : rounds_.out.parcels[number]) {
      pack(parcel, chunk, packed, outgoing(number) + parcel.offset, sums);
    }
  }

  void place(const Piece& piece, const std::byte* packed, LoadSums& sums) {
    const ReadBlock& block = job_.block_of(piece);
    sums.source[piece.block] += hash_rows(packed, piece.rows, piece.bytes, piece.bytes,
                                          source_offset(block, piece), block.file_stride);
    for (std::uint32_t d = block.first; d < block.first + block.count; ++d) {
      const Delivery& delivery = job_.work.reads.deliveries[d];
      const auto share = share_of(piece, delivery);
      if (!share || job_.by_message(delivery.owner)) continue;
      const HostRows placed{job_.address(delivery, share->slab_offset), delivery.target_stride,
                            piece.rows};
      place_share(delivery, *share, packed + share->begin, piece.bytes, placed);
      add_hash(d, block, *share, placed, sums);
    }
  }

  void pack(const Parcel& parcel, const Chunk& chunk, const std::vector<const std::byte*>& packed,
            std::byte* message, LoadSums& sums) {
    std::memset(message, 0, parcel.bytes);  // what lies between segments
    const auto placed = [&](std::size_t i) {
      const SegmentSource& source = parcel.sources[i];
      return HostRows{message + parcel.offsets[i], source.share.target_bytes,
                      rounds_.out.list.pieces[source.piece].rows};
    };
    for (std::size_t i = 0; i < parcel.sources.size(); ++i) {
      const SegmentSource& source = parcel.sources[i];
      const Piece& piece = rounds_.out.list.pieces[source.piece];
      const Delivery& delivery = job_.work.reads.deliveries[source.delivery];
      place_share(delivery, source.share, packed[source.piece - chunk.first] + source.share.begin,
                  piece.bytes, placed(i));
      add_hash(source.delivery, job_.block_of(piece), source.share, placed(i), sums);
    }
    for (std::size_t i = 0; i < parcel.repeats.size(); ++i) {
      const SegmentSource& source = parcel.repeats[i];
      add_hash(source.delivery, job_.block_of(rounds_.out.list.pieces[source.piece]), source.share,
               placed(i % parcel.sources.size()), sums);
    }
  }

  void add_hash(std::uint32_t index, const ReadBlock& block, const Share& share,
                const HostRows& placed, LoadSums& sums) const {
    const Delivery& delivery = job_.work.reads.deliveries[index];
    if (!delivery.hashed || hashes_alike(block, delivery)) return;
    sums.served[index] += hash_share(delivery, share, placed);
  }

  void exchange(const std::atomic<bool>& stop) {
    std::byte* const incoming = ring_.bytes().data() + slot_count_ * slot_bytes_;
    for (std::size_t round = 0; round < rounds_.count; ++round) {
      const bool sends = round < rounds_.out.parcels.size();
      if (sends && !slots_.wait_ready(round, job_.cancel, stop)) return;
      rounds_.exchange(job_.work.messages->exchange, round, sends ? outgoing(round) : nullptr,
                       incoming, nullptr, stop);
      if (sends) slots_.set_left(round);
      rounds_.for_each_segment(
          round, incoming,
          [&](const Segment& segment, const std::byte* bytes) { unpack(segment, bytes); });
    }
  }

  void unpack(const Segment& segment, const std::byte* bytes) const {
    std::byte* const target = job_.work.memory.address(segment.slab) + segment.slab_offset;
    for (std::uint64_t row = 0; row < segment.rows; ++row) {
      std::memcpy(target + row * segment.target_stride, bytes + row * segment.row_bytes,
                  segment.row_bytes);
    }
  }

  LoadJob& job_;
  const RoundWork rounds_;
  const std::uint64_t chunk_bytes_;
  const std::uint64_t slot_bytes_;
  const std::size_t slot_count_;
  RoundSlots slots_;
  const Ring ring_;
  std::mutex mutex_;  // of the sums
  LoadSums sums_;
};

}  // namespace

LoadSums share_on_host(LoadJob& job) { return HostRounds(job).run(); }

}  // namespace preload
