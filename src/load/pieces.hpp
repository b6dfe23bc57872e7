// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/read_plan.hpp"

namespace preload {

// A part of one block: `rows` whole rows, or (rows = 1) bytes [begin, begin + bytes) of one row.
struct Piece {
  std::uint32_t block = 0;
  std::uint64_t row = 0;  // the first
  std::uint64_t rows = 1;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;  // of each row

  std::uint64_t total_bytes() const noexcept { return rows * bytes; }
  friend bool operator==(const Piece&, const Piece&) = default;
};

// Pieces [first, first + count) that lie one after the other in a buffer.
struct Chunk {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const Chunk&, const Chunk&) = default;
};

struct ChunkList {
  std::vector<Piece> pieces;
  std::vector<Chunk> chunks;  // in the blocks' order: by file and offset
};

// Cuts blocks into chunks of at most `chunk_bytes` (a multiple of 4 KiB) source bytes: long rows
// are split, short blocks share a chunk.
ChunkList cut_into_chunks(std::span<const ReadBlock> blocks, std::uint64_t chunk_bytes);

// Chunks [first, first + count) that are read by several threads and placed together; `placed`
// counts pieces of BatchList::pieces, joined where they touch.
struct Batch {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  Chunk placed;
};
struct BatchList {
  std::vector<Piece> pieces;
  std::vector<Batch> batches;
};
// Groups consecutive chunks up to `batch_bytes`, at least one of them.
BatchList group_chunks(const ChunkList& list, std::uint64_t batch_bytes);

// Where a piece lies, relative to its file and source tensor.
std::uint64_t file_offset(const FileRows& rows, const Piece& piece) noexcept;
std::uint64_t source_offset(const FileRows& rows, const Piece& piece) noexcept;
// One stretch of the file; its rows one after the other.
bool is_file_run(const FileRows& rows, const Piece& piece) noexcept;

// What of a piece one delivery takes: bytes [begin, begin + bytes) of each of its rows.
struct Share {
  std::uint64_t begin = 0;  // from the piece's begin
  std::uint64_t bytes = 0;
  std::uint64_t slab_offset = 0;    // where it goes, first row
  std::uint64_t target_offset = 0;  // the same from the tensor's first byte
  std::uint64_t target_bytes = 0;   // of each row
};
// Unset when it takes nothing.
std::optional<Share> share_of(const Piece& piece, const Delivery& delivery) noexcept;
// The piece's bytes are the share, and go to their place as they are, in one stretch.
bool goes_straight(const Piece& piece, const Delivery& delivery, const Share& share) noexcept;

// The block's bytes have the same values and the same indices in the target tensor: one hash serves
// both.
bool hashes_alike(const FileRows& rows, const Delivery& delivery) noexcept;

}  // namespace preload
