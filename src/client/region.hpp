// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.hpp"
#include "client/attachment.hpp"
#include "client/slab_reader.hpp"
#include "wire/manifest.hpp"

namespace preload::client {

// Rows of bytes in a slab and their places in some larger byte sequence (a tensor in row-major
// order, say). Whose they are is `tag`.
struct Region {
  std::uint32_t tag = 0;
  std::uint32_t slab = 0;
  std::uint64_t memory_offset = 0;  // in the slab
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint64_t memory_stride = 0;
  std::uint64_t index_offset = 0;
  std::uint64_t index_stride = 0;
  friend bool operator==(const Region&, const Region&) = default;
};

// The regions that make up a tensor's row-major bytes, in the order of memory; none for a tensor
// without elements. Throws Error(kProtocol) for a strided tensor of less than a byte per element.
std::vector<Region> row_major_regions(const wire::ManifestTensor& tensor, std::uint32_t tag);

// Pieces of a slab with the regions that lie in them: regions too large for a piece are cut,
// neighbours share one.
struct RegionPieces {
  std::vector<Piece> pieces;
  std::vector<Region> regions;
  std::vector<std::size_t> first;  // by piece: its first region; one more at the end
};
RegionPieces cut_into_pieces(const std::vector<Region>& regions);

// Per tag (0 … tags-1): the sum of the hash contributions of its regions.
std::vector<Hash128> hash_regions(const Attachment& attachment, const std::vector<Region>& regions,
                                  std::size_t tags, int threads);

// Of all its elements without gaps.
std::uint64_t row_major_bytes(const wire::ManifestTensor& tensor);

// The tensor's row-major bytes into host memory. Throws Error(kUsage) when `out` is of another
// size.
void read_tensor(const Attachment& attachment, const wire::ManifestTensor& tensor,
                 std::span<std::byte> out);

}  // namespace preload::client
