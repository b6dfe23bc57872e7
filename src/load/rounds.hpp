// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "load/pieces.hpp"
#include "plan/read_plan.hpp"

namespace preload {

// Ranks that cannot write each other's memory send each other what they read in rounds: in the n-th
// round each sends what others get of its n-th chunk, one message to each of them. Both sides cut
// the same blocks into the same chunks, so that a message needs no description.

// Rows of a target tensor in a message, one after the other, as the target holds them.
struct Segment {
  std::uint64_t offset = 0;  // in the message
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint32_t slab = 0;  // of the receiver
  std::uint64_t slab_offset = 0;
  std::uint64_t target_stride = 0;  // bytes between rows in the target

  friend bool operator==(const Segment&, const Segment&) = default;
};

// Where a segment's bytes come from: a part of a piece of the chunk.
struct SegmentSource {
  std::uint32_t piece = 0;     // of the chunk list
  std::uint32_t delivery = 0;  // of the plan
  Share share;
};

// Bytes that are sent to `ranks`, the same to all of them.
struct Parcel {
  std::vector<std::uint32_t> ranks;
  std::vector<SegmentSource> sources;  // of the first of `ranks`
  std::vector<std::uint64_t> offsets;  // of each source's segment in the message
  std::vector<SegmentSource> repeats;  // of the other ranks, each as many as `sources`
  std::uint64_t offset = 0;            // in the round's outgoing bytes
  std::uint64_t bytes = 0;
};

// Kernels that convert read and write whole elements of any type: segments begin on multiples of
// this in their message, and a chunk's pieces may be laid out so.
inline constexpr std::uint64_t kElementAlignment = 8;

// How large a chunk may be so that the messages of `givers` ranks fit into memory together, and
// some chunks into the ring. The same on every rank.
std::uint64_t round_bytes(std::size_t givers, std::uint64_t ring_bytes) noexcept;

// What one rank reads and sends, round by round.
struct OutgoingRounds {
  // `by_message`: whether a rank is sent messages, rather than written to.
  OutgoingRounds(const ReadPlan& shared, std::uint64_t chunk_bytes,
                 const std::function<bool(std::uint32_t rank)>& by_message);

  ChunkList list;
  std::vector<std::vector<Parcel>> parcels;  // by round
  std::uint64_t most_bytes = 0;              // of a round's parcels together
  std::uint64_t most_aligned_bytes = 0;      // of a chunk whose pieces are laid out aligned
};

// What one rank is sent by another, round by round.
struct IncomingRounds {
  IncomingRounds(const ReadPlan& incoming, std::uint64_t chunk_bytes);

  struct Round {
    std::vector<Segment> segments;
    std::uint64_t bytes = 0;
  };
  std::uint32_t giver = 0;
  std::vector<Round> rounds;
};

}  // namespace preload
