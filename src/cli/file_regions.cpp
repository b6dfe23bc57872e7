// SPDX-License-Identifier: Apache-2.0
#include "cli/file_regions.hpp"

#include <atomic>
#include <mutex>

#include "client/region.hpp"
#include "load/convert_rows.hpp"
#include "load/run_threads.hpp"
#include "load/source_files.hpp"

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
  const std::uint64_t row_bytes = part.row_bytes * to_bits / from_bits;
  std::vector<std::byte> cast(part.rows * row_bytes);
  convert_rows(
      {bytes, op.file_stride, cast.data(), row_bytes, part.rows, part.row_bytes * 8 / from_bits},
      op.from, op.to);
  return hash_rows(cast.data(), part.rows, row_bytes, row_bytes, target, op.target_stride);
}

}  // namespace

std::vector<Hash128> hash_file_regions(const Checkpoint& checkpoint, const std::vector<CopyOp>& ops,
                                       int threads) {
  const client::RegionPieces cut = client::cut_into_pieces(regions_of(ops));
  std::vector<std::uint32_t> needed;
  for (const CopyOp& op : ops) needed.push_back(op.file);
  SourceFiles files(checkpoint, needed);
  std::vector<Hash128> sums(ops.size());
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  run_threads(threads, [&](int, const std::atomic<bool>& failed) {
    std::vector<std::byte> buffer;
    for (std::size_t i = next++; i < cut.pieces.size() && !failed; i = next++) {
      const Piece& piece = cut.pieces[i];
      buffer.resize(piece.bytes);
      files.read(piece.slab, piece.offset, buffer);  // `slab` is a file here
      for (std::size_t r = cut.first[i]; r < cut.first[i + 1]; ++r) {
        const Region& part = cut.regions[r];
        const Hash128 hash =
            hash_part(ops[part.tag], part, buffer.data() + (part.memory_offset - piece.offset));
        const std::lock_guard lock(mutex);
        sums[part.tag] += hash;
      }
    }
  });
  files.check_unchanged();
  return sums;
}

}  // namespace preload::cli
