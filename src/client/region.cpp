// SPDX-License-Identifier: Apache-2.0
#include "client/region.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "checkpoint/dims.hpp"
#include "model/extent.hpp"

namespace preload::client {
namespace {

struct Axis {
  std::uint64_t size = 1;
  std::uint64_t memory_stride = 0;  // bytes
  std::uint64_t index_stride = 0;   // bytes
};

// The axes of more than one element, outermost in memory first. Axes that continue each other in
// memory and in row-major order are one.
std::vector<Axis> memory_axes(const wire::ManifestTensor& tensor, std::uint64_t element_bytes) {
  const Dims row_major = contiguous_strides(tensor.shape);
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 1) continue;
    axes.push_back({static_cast<std::uint64_t>(tensor.shape[i]),
                    static_cast<std::uint64_t>(tensor.strides[i]) * element_bytes,
                    static_cast<std::uint64_t>(row_major[i]) * element_bytes});
  }
  std::ranges::stable_sort(
      axes, [](const Axis& a, const Axis& b) { return a.memory_stride > b.memory_stride; });
  std::vector<Axis> merged;
  for (const Axis& axis : axes) {
    Axis* outer = merged.empty() ? nullptr : &merged.back();
    if (outer != nullptr && outer->memory_stride == axis.size * axis.memory_stride &&
        outer->index_stride == axis.size * axis.index_stride) {
      *outer = {outer->size * axis.size, axis.memory_stride, axis.index_stride};
    } else {
      merged.push_back(axis);
    }
  }
  return merged;
}

void emit(std::vector<Region>& out, const std::vector<Axis>& axes, std::size_t depth,
          const Region& region) {
  if (depth == axes.size()) {
    out.push_back(region);
    return;
  }
  Region next = region;
  for (std::uint64_t i = 0; i < axes[depth].size; ++i) {
    next.memory_offset = region.memory_offset + i * axes[depth].memory_stride;
    next.index_offset = region.index_offset + i * axes[depth].index_stride;
    emit(out, axes, depth + 1, next);
  }
}

std::uint64_t span_bytes(const Region& region) {
  return (region.rows - 1) * region.memory_stride + region.row_bytes;
}

// The region in parts that fit into a piece: whole rows where one does, else cuts of a row.
void cut_region(const Region& region, std::vector<Region>& out) {
  const bool rows_fit = region.row_bytes <= kPieceBytes;
  const std::uint64_t rows_per_cut =
      !rows_fit || region.memory_stride == 0
          ? 1
          : std::max<std::uint64_t>(1, (kPieceBytes - region.row_bytes) / region.memory_stride + 1);
  for (std::uint64_t row = 0; row < region.rows; row += rows_per_cut) {
    for (std::uint64_t at = 0; at < region.row_bytes; at += kPieceBytes) {
      Region part = region;
      part.memory_offset += row * region.memory_stride + at;
      part.index_offset += row * region.index_stride + at;
      part.rows = std::min(rows_per_cut, region.rows - row);
      part.row_bytes = std::min(kPieceBytes, region.row_bytes - at);
      out.push_back(part);
    }
  }
}

}  // namespace

std::vector<Region> row_major_regions(const wire::ManifestTensor& tensor, std::uint32_t tag) {
  if (tensor.bytes == 0) return {};
  Region whole{tag, tensor.slab, tensor.offset, 1, tensor.bytes, 0, 0, 0};
  if (tensor.strides == contiguous_strides(tensor.shape)) return {whole};
  if (dtype_bits(tensor.dtype) % 8 != 0) {
    throw Error(Errc::kProtocol,
                fmt::format("{} is strided with less than a byte per element", tensor.name));
  }
  const std::uint64_t element_bytes = dtype_bits(tensor.dtype) / 8;
  std::vector<Axis> axes = memory_axes(tensor, element_bytes);
  whole.row_bytes = element_bytes;
  // The innermost axis is the row where both orders run along it, and the rows elsewhere.
  if (!axes.empty() && axes.back().memory_stride == element_bytes &&
      axes.back().index_stride == element_bytes) {
    whole.row_bytes = axes.back().size * element_bytes;
    axes.pop_back();
  }
  if (!axes.empty()) {
    whole.rows = axes.back().size;
    whole.memory_stride = axes.back().memory_stride;
    whole.index_stride = axes.back().index_stride;
    axes.pop_back();
  }
  std::vector<Region> regions;
  emit(regions, axes, 0, whole);
  return regions;
}

RegionPieces cut_into_pieces(const std::vector<Region>& regions) {
  RegionPieces out;
  for (const Region& region : regions) {
    if (region.row_bytes != 0 && region.rows != 0) cut_region(region, out.regions);
  }
  for (std::size_t i = 0; i < out.regions.size(); ++i) {
    const Region& region = out.regions[i];
    const std::uint64_t end = region.memory_offset + span_bytes(region);
    if (!out.pieces.empty()) {
      Piece& piece = out.pieces.back();
      if (piece.slab == region.slab && region.memory_offset >= piece.offset &&
          end <= piece.offset + kPieceBytes) {
        piece.bytes = std::max(piece.bytes, end - piece.offset);
        continue;
      }
    }
    out.pieces.push_back({region.slab, region.memory_offset, span_bytes(region)});
    out.first.push_back(i);
  }
  out.first.push_back(out.regions.size());
  return out;
}

std::vector<Hash128> hash_regions(const Attachment& attachment, const std::vector<Region>& regions,
                                  std::size_t tags, int threads) {
  const RegionPieces cut = cut_into_pieces(regions);
  std::vector<Hash128> sums(tags);
  std::mutex mutex;
  read_pieces(attachment, cut.pieces, threads,
              [&](std::size_t piece, std::span<const std::byte> bytes) {
                for (std::size_t i = cut.first[piece]; i < cut.first[piece + 1]; ++i) {
                  const Region& r = cut.regions[i];
                  const Hash128 part =
                      hash_rows(bytes.data() + (r.memory_offset - cut.pieces[piece].offset), r.rows,
                                r.row_bytes, r.memory_stride, r.index_offset, r.index_stride);
                  const std::lock_guard lock(mutex);
                  sums[r.tag] += part;
                }
              });
  return sums;
}

std::uint64_t row_major_bytes(const wire::ManifestTensor& tensor) {
  return element_bytes(element_count(tensor.shape), tensor.dtype);
}

void read_tensor(const Attachment& attachment, const wire::ManifestTensor& tensor,
                 std::span<std::byte> out) {
  const std::uint64_t bytes = row_major_bytes(tensor);
  if (out.size() != bytes) {
    throw Error(Errc::kUsage, fmt::format("{} is {} bytes in row-major order, not {}", tensor.name,
                                          bytes, out.size()));
  }
  const RegionPieces cut = cut_into_pieces(row_major_regions(tensor, 0));
  read_pieces(attachment, cut.pieces, default_threads(),
              [&](std::size_t piece, std::span<const std::byte> from) {
                for (std::size_t i = cut.first[piece]; i < cut.first[piece + 1]; ++i) {
                  const Region& r = cut.regions[i];
                  const std::byte* row = from.data() + (r.memory_offset - cut.pieces[piece].offset);
                  for (std::uint64_t n = 0; n < r.rows; ++n) {
                    std::memcpy(out.data() + r.index_offset + n * r.index_stride,
                                row + n * r.memory_stride, r.row_bytes);
                  }
                }
              });
}

}  // namespace preload::client
