// SPDX-License-Identifier: Apache-2.0
#include "load/pieces.hpp"

#include <algorithm>

namespace preload {

namespace {

// More would make one chunk's bookkeeping outweigh its bytes.
constexpr std::uint32_t kMaxPiecesPerChunk = 256;

// Elements of the target per element of the source, in bytes: offsets inside a row scale by it.
std::uint64_t to_target_bytes(const CopyOp& op, std::uint64_t source_bytes) noexcept {
  if (!op.converts()) return source_bytes;
  return source_bytes / (dtype_bits(op.from) / 8) * (dtype_bits(op.to) / 8);
}

class Cutter {
 public:
  explicit Cutter(std::uint64_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

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

  void add_op(std::uint32_t index, const CopyOp& op) {
    if (op.rows == 0 || op.row_bytes == 0) return;
    if (op.row_bytes <= chunk_bytes_) {
      const std::uint64_t rows_at_once = chunk_bytes_ / op.row_bytes;
      for (std::uint64_t row = 0; row < op.rows; row += rows_at_once) {
        add({index, row, std::min(rows_at_once, op.rows - row), 0, op.row_bytes});
      }
      return;
    }
    for (std::uint64_t row = 0; row < op.rows; ++row) {
      for (std::uint64_t begin = 0; begin < op.row_bytes; begin += chunk_bytes_) {
        add({index, row, 1, begin, std::min(chunk_bytes_, op.row_bytes - begin)});
      }
    }
  }

  ChunkList take() { return std::move(list_); }

 private:
  std::uint64_t chunk_bytes_;
  ChunkList list_;
};

}  // namespace

CopyOp join_rows(const CopyOp& op) noexcept {
  CopyOp joined = op;
  if (op.rows > 1 && op.file_stride == op.row_bytes && op.target_stride == target_row_bytes(op)) {
    joined.row_bytes = op.rows * op.row_bytes;
    joined.rows = 1;
  }
  if (joined.row_bytes == 0) joined.rows = 0;
  return joined;
}

ChunkList cut_into_chunks(const std::vector<CopyOp>& ops, std::uint64_t chunk_bytes) {
  Cutter cutter(chunk_bytes);
  for (std::size_t i = 0; i < ops.size(); ++i) cutter.add_op(static_cast<std::uint32_t>(i), ops[i]);
  return cutter.take();
}

std::uint64_t file_offset(const CopyOp& op, const Piece& piece) noexcept {
  return op.file_offset + piece.row * op.file_stride + piece.begin;
}

std::uint64_t source_offset(const CopyOp& op, const Piece& piece) noexcept {
  return op.source_offset + piece.row * op.file_stride + piece.begin;
}

std::uint64_t target_offset(const CopyOp& op, const Piece& piece) noexcept {
  return op.target_offset + piece.row * op.target_stride + to_target_bytes(op, piece.begin);
}

std::uint64_t target_bytes(const CopyOp& op, const Piece& piece) noexcept {
  return to_target_bytes(op, piece.bytes);
}

bool is_file_run(const CopyOp& op, const Piece& piece) noexcept {
  return piece.rows == 1 || op.file_stride == piece.bytes;
}

bool is_target_run(const CopyOp& op, const Piece& piece) noexcept {
  return piece.rows == 1 || op.target_stride == target_bytes(op, piece);
}

bool hashes_alike(const CopyOp& op) noexcept {
  return !op.converts() && op.source_offset == op.target_offset &&
         (op.rows == 1 || op.file_stride == op.target_stride);
}

}  // namespace preload
