// SPDX-License-Identifier: Apache-2.0
#include "load/device_placer.cuh"

#include "hash.hpp"
#include "place_rows.hpp"

namespace preload {

namespace {

kernels::Float float_kind(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return kernels::Float::kF16;
    case DType::kBF16:
      return kernels::Float::kBF16;
    case DType::kF32:
      return kernels::Float::kF32;
    case DType::kF64:
      return kernels::Float::kF64;
    default:
      throw Error(Errc::kInternal, "a type that values are not converted from or to");
  }
}

}  // namespace

void DevicePlacer::place(const Piece& piece, std::byte* landed) const {
  const ReadBlock& block = job_.block_of(piece);
  for (std::uint32_t d = block.first; d < block.first + block.count; ++d) {
    const Delivery& delivery = job_.work.reads.deliveries[d];
    const auto share = share_of(piece, delivery);
    if (!share || job_.by_message(delivery.owner)) continue;
    const DeviceRows target{job_.address(delivery, share->slab_offset), delivery.target_stride};
    if (target.data != landed) copy(piece, delivery, *share, landed, target);
    // What is not converted is hashed where it landed: the target may be another GPU's.
    hash(piece, d, *share,
         delivery.converts() ? target : DeviceRows{landed + share->begin, piece.bytes});
  }
  check_launch(kernels::hash_rows({landed, piece.rows, piece.bytes, piece.bytes,
                                   source_offset(block, piece), block.file_stride},
                                  sums_.source(piece.block), stream_),
               "hashing on the GPU");
}

void DevicePlacer::copy(const Piece& piece, const Delivery& delivery, const Share& share,
                        const std::byte* landed, const DeviceRows& target) const {
  const kernels::RowCopy rows{landed + share.begin, piece.bytes, target.data, target.stride,
                              piece.rows};
  check_launch(
      delivery.converts()
          ? kernels::convert_rows(rows, share.bytes / (dtype_bits(delivery.from) / 8),
                                  float_kind(delivery.from), float_kind(delivery.to), stream_)
          : kernels::copy_rows(rows, share.bytes, stream_),
      "placing rows on the GPU");
}

void DevicePlacer::hash(const Piece& piece, std::uint32_t delivery, const Share& share,
                        const DeviceRows& placed) const {
  const Delivery& to = job_.work.reads.deliveries[delivery];
  if (!to.hashed || hashes_alike(job_.block_of(piece), to)) return;
  check_launch(kernels::hash_rows({placed.data, piece.rows, share.target_bytes, placed.stride,
                                   share.target_offset, to.target_stride},
                                  sums_.served(delivery), stream_),
               "hashing on the GPU");
}

}  // namespace preload
