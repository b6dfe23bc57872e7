// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/load_plan.hpp"

namespace preload {

// Where a part of each row of a block goes: into a tensor of any rank of the node.
struct Delivery {
  std::uint32_t owner = 0;          // rank, by its number on the node
  std::uint32_t tensor = 0;         // of the owner's program
  std::uint32_t slab = 0;           // of the owner
  std::uint64_t slab_offset = 0;    // of the part's first byte in the slab, first row
  std::uint64_t target_offset = 0;  // the same from the target tensor's first byte
  std::uint64_t target_stride = 0;  // bytes between rows in the target
  std::uint64_t begin = 0;          // the part's first byte in each row of the block
  std::uint64_t bytes = 0;          // of each row of the block
  DType from = DType::kBF16;        // a value conversion when from != to
  DType to = DType::kBF16;
  bool hashed = false;  // the served tensor's hash adds up from its copies, so this one counts
  friend bool operator==(const Delivery&, const Delivery&) = default;

  bool converts() const noexcept { return from != to; }
  std::uint64_t to_target(std::uint64_t source_bytes) const noexcept {
    return converts() ? source_bytes / (dtype_bits(from) / 8) * (dtype_bits(to) / 8) : source_bytes;
  }
};

// Rows that one rank holds a part of, and where that goes.
struct HeldRows {
  FileRows rows;
  Delivery to;
};
// All that a rank holds, in its plan's order, rows joined where they touch; `owner` is its number
// on its node. What planning a node's reads needs of it: its program and plan may go.
std::vector<HeldRows> held_rows(const CopyProgram& program, const LoadPlan& plan,
                                std::uint32_t owner);

// Rows that one rank reads once, and their deliveries.
struct ReadBlock : FileRows {
  std::uint32_t first = 0;  // of the plan's deliveries
  std::uint32_t count = 0;
  friend bool operator==(const ReadBlock&, const ReadBlock&) = default;
};

// Rows of a slice with no more than this between them are read with what is between them: copying
// that costs less than another system call does, and the kernel reads it ahead anyway.
inline constexpr std::uint64_t kMaxGapBytes = 16 * 1024;

// Bytes of one rank's part in what its node reads.
struct RankReads {
  std::uint64_t read_bytes = 0;      // of the checkpoint
  std::uint64_t gap_bytes = 0;       // read with them and dropped, between rows that lie close
  std::uint64_t sent_bytes = 0;      // into other ranks' memory
  std::uint64_t received_bytes = 0;  // from other ranks
  friend bool operator==(const RankReads&, const RankReads&) = default;
};

// What one rank of a node reads and hands out. Pure; every rank of the node computes all of them.
struct ReadPlan : RankReads {
  std::uint32_t self = 0;         // this rank's number on the node
  std::vector<ReadBlock> blocks;  // by file and offset
  std::vector<Delivery> deliveries;
  std::vector<std::uint32_t> receivers;  // the ranks that it hands something to, ascending
  std::vector<std::uint32_t> givers;     // the ranks that it is handed something by, ascending
  friend bool operator==(const ReadPlan&, const ReadPlan&) = default;

  std::span<const Delivery> deliveries_of(const ReadBlock& block) const noexcept {
    return std::span(deliveries).subspan(block.first, block.count);
  }
};

// A rank that reads what it holds, by itself.
ReadPlan plan_own_reads(std::span<const HeldRows> held, std::uint32_t self);

// Bytes that several of the members hold, or slices of the same rows, are read by one of them and
// handed to the others; the work is shared out evenly. Blocks under `least_bytes` are read by every
// rank that holds them. One plan per member.
std::vector<ReadPlan> plan_spread_reads(std::vector<std::vector<HeldRows>> members,
                                        std::uint64_t least_bytes);

}  // namespace preload
