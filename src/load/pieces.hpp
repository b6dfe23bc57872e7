// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "plan/load_plan.hpp"

namespace preload {

// A part of one op that fits a buffer: `rows` whole rows, or (rows = 1) bytes [begin, begin +
// bytes) of one row.
struct Piece {
  std::uint32_t op = 0;
  std::uint64_t row = 0;  // the first
  std::uint64_t rows = 1;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;  // of each row

  std::uint64_t total_bytes() const noexcept { return rows * bytes; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

// Pieces that are read and placed together: [first, first + count) of the pieces.
struct Chunk {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

struct ChunkList {
  std::vector<Piece> pieces;
  std::vector<Chunk> chunks;  // in the ops' order: by file and offset
};

// Joins rows that touch on both sides into one; a zero-size op gets no rows.
CopyOp join_rows(const CopyOp& op) noexcept;

// Cuts ops into chunks of at most `chunk_bytes` (a multiple of 4 KiB) source bytes: long rows are
// split, short ops share a chunk.
ChunkList cut_into_chunks(const std::vector<CopyOp>& ops, std::uint64_t chunk_bytes);

// Where a piece lies, relative to its op's file, source tensor and target tensor.
std::uint64_t file_offset(const CopyOp& op, const Piece& piece) noexcept;
std::uint64_t source_offset(const CopyOp& op, const Piece& piece) noexcept;
std::uint64_t target_offset(const CopyOp& op, const Piece& piece) noexcept;
std::uint64_t target_bytes(const CopyOp& op, const Piece& piece) noexcept;  // of each row

// One stretch of the file; its rows one after the other.
bool is_file_run(const CopyOp& op, const Piece& piece) noexcept;
bool is_target_run(const CopyOp& op, const Piece& piece) noexcept;
// Source and target bytes have the same values and the same indices in their tensors.
bool hashes_alike(const CopyOp& op) noexcept;

}  // namespace preload
