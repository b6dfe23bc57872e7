// SPDX-License-Identifier: Apache-2.0
#include "cli/file_regions.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "cli/cast.hpp"
#include "client/region.hpp"
#include "client/slab_reader.hpp"

namespace preload::cli {
namespace {

using client::Piece;
using client::Region;

// The ops' rows in their files, in the place of slabs.
std::vector<Region> regions_of(const std::vector<CopyOp>& ops) {
  std::vector<Region> regions;
  for (std::uint32_t i = 0; i < ops.size(); ++i) {
    const CopyOp& op = ops[i];
    regions.push_back({i, op.file, op.file_offset, op.rows, op.row_bytes, op.file_stride, 0, 0});
  }
  return regions;
}

std::vector<Fd> open_files(const Checkpoint& checkpoint) {
  std::vector<Fd> files;
  for (const SourceFile& file : checkpoint.files) {
    files.push_back(open_fd(AT_FDCWD, checkpoint.directory + "/" + file.name, O_RDONLY | O_CLOEXEC,
                            0, Errc::kCheckpoint));
  }
  return files;
}

// The contribution of some rows of `op`, which lie at `bytes` as they do in the file.
Hash128 hash_part(const CopyOp& op, const Region& part, const std::byte* bytes) {
  const std::uint64_t delta = part.memory_offset - op.file_offset;
  const std::uint64_t row = op.rows == 1 ? 0 : delta / op.file_stride;
  const std::uint64_t in_row = op.rows == 1 ? delta : delta % op.file_stride;
  const std::uint64_t to_bits = dtype_bits(op.to);
  const std::uint64_t from_bits = dtype_bits(op.from);
  const std::uint64_t target =
      op.target_offset + row * op.target_stride + in_row * to_bits / from_bits;
  if (!op.converts()) {
    return hash_rows(bytes, part.rows, part.row_bytes, op.file_stride, target, op.target_stride);
  }
  std::vector<std::byte> row_bytes(part.row_bytes * to_bits / from_bits);
  Hash128 sum;
  for (std::uint64_t i = 0; i < part.rows; ++i) {
    cast_floats({bytes + i * op.file_stride, part.row_bytes}, op.from, op.to, row_bytes);
    sum += hash_bytes(row_bytes, target + i * op.target_stride);
  }
  return sum;
}

void read_piece(const Checkpoint& checkpoint, const std::vector<Fd>& files, const Piece& piece,
                std::span<std::byte> out) {
  const std::string& name = checkpoint.files[piece.slab].name;
  const std::size_t read =
      pread_full(files[piece.slab].get(), out, piece.offset, fmt::format("reading '{}'", name));
  if (read != out.size()) {
    throw Error(Errc::kCheckpoint,
                fmt::format("'{}' ends {} bytes before byte {}: it changed since its header was "
                            "read; verify again",
                            name, out.size() - read, piece.offset + piece.bytes));
  }
}

}  // namespace

std::vector<Hash128> hash_file_regions(const Checkpoint& checkpoint, const std::vector<CopyOp>& ops,
                                       int threads) {
  const client::RegionPieces cut = client::cut_into_pieces(regions_of(ops));
  const std::vector<Fd> files = open_files(checkpoint);
  std::vector<Hash128> sums(ops.size());
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  client::run_threads(threads, [&](const std::atomic<bool>& failed) {
    std::vector<std::byte> buffer;
    for (std::size_t i = next++; i < cut.pieces.size() && !failed; i = next++) {
      const Piece& piece = cut.pieces[i];
      buffer.resize(piece.bytes);
      read_piece(checkpoint, files, piece, buffer);
      for (std::size_t r = cut.first[i]; r < cut.first[i + 1]; ++r) {
        const Region& part = cut.regions[r];
        const Hash128 hash =
            hash_part(ops[part.tag], part, buffer.data() + (part.memory_offset - piece.offset));
        const std::lock_guard lock(mutex);
        sums[part.tag] += hash;
      }
    }
  });
  return sums;
}

}  // namespace preload::cli
