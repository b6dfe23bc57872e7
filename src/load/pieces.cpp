// SPDX-License-Identifier: Apache-2.0
#include "load/pieces.hpp"

#include <algorithm>
#include <utility>

namespace preload {

namespace {

// More would make one chunk's bookkeeping outweigh its bytes.
constexpr std::uint32_t kMaxPiecesPerChunk = 256;

class Cutter {
 public:
  explicit Cutter(std::uint64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  void add_block(std::uint32_t index, const FileRows& block) {
    if (block.rows == 0 || block.row_bytes == 0) return;
    if (block.row_bytes <= chunk_bytes_) {
      const std::uint64_t rows_at_once = chunk_bytes_ / block.row_bytes;
      for (std::uint64_t row = 0; row < block.rows; row += rows_at_once) {
        add({index, row, std::min(rows_at_once, block.rows - row), 0, block.row_bytes});
      }
      return;
    }
    for (std::uint64_t row = 0; row < block.rows; ++row) {
      for (std::uint64_t begin = 0; begin < block.row_bytes; begin += chunk_bytes_) {
        add({index, row, 1, begin, std::min(chunk_bytes_, block.row_bytes - begin)});
      }
    }
  }

  ChunkList take() { return std::move(list_); }

 private:
  void add(const Piece& piece) {
    const std::uint64_t bytes = piece.total_bytes();
    auto& chunks = list_.chunks;
    if (chunks.empty() || chunks.back().bytes + bytes > chunk_bytes_ ||
        chunks.back().count == kMaxPiecesPerChunk) {
      chunks.push_back({static_cast<std::uint32_t>(list_.pieces.size()), 0, 0});
    }
    list_.pieces.push_back(piece);
    ++chunks.back().count;
    chunks.back().bytes += bytes;
  }

  std::uint64_t chunk_bytes_;
  ChunkList list_;
};

// Makes `piece` a part of `last`, which it follows in the buffer, if both are one.
bool join(Piece& last, const Piece& piece) noexcept {
  if (last.block != piece.block) return false;
  if (last.begin == piece.begin && last.bytes == piece.bytes && last.row + last.rows == piece.row) {
    last.rows += piece.rows;
    return true;
  }
  if (last.rows == 1 && piece.rows == 1 && last.row == piece.row &&
      last.begin + last.bytes == piece.begin) {
    last.bytes += piece.bytes;
    return true;
  }
  return false;
}

}  // namespace

ChunkList cut_into_chunks(std::span<const ReadBlock> blocks, std::uint64_t chunk_bytes) {
  Cutter cutter(chunk_bytes);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    cutter.add_block(static_cast<std::uint32_t>(i), blocks[i]);
  }
  return cutter.take();
}

BatchList group_chunks(const ChunkList& list, std::uint64_t batch_bytes) {
  BatchList result;
  for (std::uint32_t c = 0; c < list.chunks.size(); ++c) {
    const Chunk& chunk = list.chunks[c];
    if (result.batches.empty() || result.batches.back().placed.bytes + chunk.bytes > batch_bytes) {
      result.batches.push_back({c, 0, {static_cast<std::uint32_t>(result.pieces.size()), 0, 0}});
    }
    Batch& batch = result.batches.back();
    ++batch.count;
    batch.placed.bytes += chunk.bytes;
    for (std::uint32_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
      if (batch.placed.count > 0 && join(result.pieces.back(), list.pieces[i])) continue;
      result.pieces.push_back(list.pieces[i]);
      ++batch.placed.count;
    }
  }
  return result;
}

std::uint64_t file_offset(const FileRows& rows, const Piece& piece) noexcept {
  return rows.file_offset + piece.row * rows.file_stride + piece.begin;
}

std::uint64_t source_offset(const FileRows& rows, const Piece& piece) noexcept {
  return rows.source_offset + piece.row * rows.file_stride + piece.begin;
}

bool is_file_run(const FileRows& rows, const Piece& piece) noexcept {
  return piece.rows == 1 || rows.file_stride == piece.bytes;
}

std::optional<Share> share_of(const Piece& piece, const Delivery& delivery) noexcept {
  const std::uint64_t begin = std::max(piece.begin, delivery.begin);
  const std::uint64_t end = std::min(piece.begin + piece.bytes, delivery.begin + delivery.bytes);
  if (begin >= end) return std::nullopt;
  const std::uint64_t moved =
      piece.row * delivery.target_stride + delivery.to_target(begin - delivery.begin);
  return Share{begin - piece.begin, end - begin, delivery.slab_offset + moved,
               delivery.target_offset + moved, delivery.to_target(end - begin)};
}

bool goes_straight(const Piece& piece, const Delivery& delivery, const Share& share) noexcept {
  return !delivery.converts() && share.bytes == piece.bytes &&
         (piece.rows == 1 || delivery.target_stride == share.bytes);
}

bool hashes_alike(const FileRows& rows, const Delivery& delivery) noexcept {
  return !delivery.converts() && delivery.begin == 0 && delivery.bytes == rows.row_bytes &&
         rows.source_offset == delivery.target_offset &&
         (rows.rows == 1 || rows.file_stride == delivery.target_stride);
}

}  // namespace preload
