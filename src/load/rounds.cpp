// SPDX-License-Identifier: Apache-2.0
#include "load/rounds.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/bytes.hpp"

namespace preload {

namespace {

constexpr std::uint64_t kMostRoundBytes = 8 * kMiB;    // networks and disks take that well
constexpr std::uint64_t kLeastRoundBytes = 64 * kKiB;  // the loader's smallest chunk
constexpr std::uint64_t kRoundMemory = 64 * kMiB;      // of what a rank is sent in one round
constexpr std::uint64_t kRingParts = 8;
constexpr std::uint64_t kPageBytes = 4 * kKiB;

Segment segment_of(const Piece& piece, const Delivery& delivery, const Share& share,
                   std::uint64_t offset) noexcept {
  return {offset,        piece.rows,        share.target_bytes,
          delivery.slab, share.slab_offset, delivery.target_stride};
}

std::uint64_t segment_end(std::uint64_t offset, const Piece& piece, const Share& share) noexcept {
  return align_up(offset + piece.rows * share.target_bytes, kElementAlignment);
}

// What decides the bytes of a segment.
using Recipe = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t, DType, DType>;

}  // namespace

std::uint64_t round_bytes(std::size_t givers, std::uint64_t ring_bytes) noexcept {
  const std::uint64_t each =
      std::min(kRoundMemory / std::max<std::size_t>(givers, 1), ring_bytes / kRingParts);
  return std::clamp(each, kLeastRoundBytes, kMostRoundBytes) / kPageBytes * kPageBytes;
}

OutgoingRounds::OutgoingRounds(const ReadPlan& shared, std::uint64_t chunk_bytes,
                               const std::function<bool(std::uint32_t rank)>& by_message)
    : list(cut_into_chunks(shared.blocks, chunk_bytes)) {
  parcels.reserve(list.chunks.size());
  for (const Chunk& chunk : list.chunks) {
    std::map<std::uint32_t, std::pair<std::vector<Recipe>, std::vector<SegmentSource>>> by_rank;
    std::uint64_t aligned_bytes = 0;
    for (std::uint32_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      const Piece& piece = list.pieces[i];
      const ReadBlock& block = shared.blocks[piece.block];
      aligned_bytes += align_up(piece.total_bytes(), kElementAlignment);
      for (std::uint32_t d = block.first; d < block.first + block.count; ++d) {
        const Delivery& delivery = shared.deliveries[d];
        if (delivery.owner == shared.self || !by_message(delivery.owner)) continue;
        const auto share = share_of(piece, delivery);
        if (!share) continue;
        auto& [recipe, sources] = by_rank[delivery.owner];
        recipe.emplace_back(i, share->begin, share->bytes, delivery.from, delivery.to);
        sources.push_back({i, d, *share});
      }
    }
    most_aligned_bytes = std::max(most_aligned_bytes, aligned_bytes);
    // Replicas are sent the same bytes, which are packed once.
    std::map<std::vector<Recipe>, std::size_t> known;
    std::vector<Parcel>& round = parcels.emplace_back();
    std::uint64_t end = 0;
    for (auto& [rank, made] : by_rank) {
      auto& [recipe, sources] = made;
      const auto [at, is_new] = known.try_emplace(std::move(recipe), round.size());
      if (!is_new) {
        Parcel& parcel = round[at->second];
        parcel.ranks.push_back(rank);
        parcel.repeats.insert(parcel.repeats.end(), sources.begin(), sources.end());
        continue;
      }
      Parcel& parcel = round.emplace_back();
      parcel.ranks.push_back(rank);
      parcel.offset = end;
      for (const SegmentSource& source : sources) {
        parcel.offsets.push_back(parcel.bytes);
        parcel.bytes = segment_end(parcel.bytes, list.pieces[source.piece], source.share);
      }
      parcel.sources = std::move(sources);
      end += parcel.bytes;
    }
    most_bytes = std::max(most_bytes, end);
  }
}

IncomingRounds::IncomingRounds(const ReadPlan& incoming, std::uint64_t chunk_bytes)
    : giver(incoming.self) {
  const ChunkList list = cut_into_chunks(incoming.blocks, chunk_bytes);
  rounds.reserve(list.chunks.size());
  for (const Chunk& chunk : list.chunks) {
    Round& round = rounds.emplace_back();
    for (std::uint32_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      const Piece& piece = list.pieces[i];
      for (const Delivery& delivery : incoming.deliveries_of(incoming.blocks[piece.block])) {
        const auto share = share_of(piece, delivery);
        if (!share) continue;
        round.segments.push_back(segment_of(piece, delivery, *share, round.bytes));
        round.bytes = segment_end(round.bytes, piece, *share);
      }
    }
  }
}

}  // namespace preload
