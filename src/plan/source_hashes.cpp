// SPDX-License-Identifier: Apache-2.0
#include "plan/source_hashes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <tuple>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/region_tiling.hpp"

namespace preload {

namespace {

using Record = std::array<std::uint64_t, 7>;
static_assert(std::endian::native == std::endian::little);

auto place_of(const SourceRegion& region) {
  return std::tie(region.source, region.offset, region.rows, region.row_bytes, region.stride);
}

// Two descriptions of the same bytes become equal: rows that touch are one row, and a single row
// has no stride.
SourceRegion canonical(SourceRegion region) {
  if (region.rows > 1 && region.stride == region.row_bytes) {
    region.row_bytes *= region.rows;
    region.rows = 1;
  }
  if (region.rows == 1) region.stride = 0;
  return region;
}

void check_bounds(const Checkpoint& checkpoint, const SourceRegion& region) {
  if (region.source >= checkpoint.tensors.size()) {
    throw Error(Errc::kInternal, fmt::format("a rank reports a region of source tensor {}, of {}",
                                             region.source, checkpoint.tensors.size()));
  }
  const SourceTensor& tensor = checkpoint.tensors[region.source];
  const auto span = checked_mul(region.rows - 1, region.stride);
  const auto size = checked_mul(region.rows, region.row_bytes);
  const bool inside = span && size && *size <= tensor.bytes && region.row_bytes <= tensor.bytes &&
                      *span <= tensor.bytes - region.row_bytes &&
                      region.offset <= tensor.bytes - region.row_bytes - *span;
  if (!inside) {
    throw Error(Errc::kInternal,
                fmt::format("a rank reports bytes outside of source tensor {}", tensor.name));
  }
}

// Drops what follows a region of the same place, after comparing.
std::vector<SourceRegion> without_replicas(const Checkpoint& checkpoint,
                                           std::vector<SourceRegion> sorted) {
  std::vector<SourceRegion> distinct;
  distinct.reserve(sorted.size());
  for (SourceRegion& region : sorted) {
    if (distinct.empty() || place_of(distinct.back()) != place_of(region)) {
      distinct.push_back(region);
    } else if (distinct.back().hash != region.hash) {
      const SourceTensor& tensor = checkpoint.tensors[region.source];
      throw Error(Errc::kDevice,
                  fmt::format("tensor {} of {}: two ranks that read the same {} bytes from byte {} "
                              "of it on hold different ones ({} and {}); a GPU, host memory or the "
                              "file system returned wrong data: check ECC errors and the disk, and "
                              "load again",
                              tensor.name, checkpoint.files[tensor.file].name,
                              region.rows * region.row_bytes, region.offset,
                              to_hex(distinct.back().hash), to_hex(region.hash)));
    }
  }
  return distinct;
}

}  // namespace

CombinedHashes combine_regions(const Checkpoint& checkpoint, std::vector<SourceRegion> regions) {
  std::erase_if(regions, [](const SourceRegion& region) {
    return region.rows == 0 || region.row_bytes == 0;  // no bytes, no contribution
  });
  for (SourceRegion& region : regions) {
    check_bounds(checkpoint, region);
    region = canonical(region);
  }
  std::sort(regions.begin(), regions.end(),
            [](const SourceRegion& a, const SourceRegion& b) { return place_of(a) < place_of(b); });
  regions = without_replicas(checkpoint, std::move(regions));

  CombinedHashes combined;
  for (std::size_t first = 0; first < regions.size();) {
    const std::uint32_t source = regions[first].source;
    std::size_t last = first;
    while (last < regions.size() && regions[last].source == source) ++last;
    const auto of_tensor = std::span(regions).subspan(first, last - first);
    const std::uint64_t bytes = checkpoint.tensors[source].bytes;
    // Someone who read it whole makes the parts of the others superfluous.
    const auto whole = std::find_if(of_tensor.begin(), of_tensor.end(),
                                    [&](const SourceRegion& r) { return r.row_bytes == bytes; });
    if (whole != of_tensor.end()) {
      combined.hashes.push_back({source, whole->hash});
    } else if (tiles(of_tensor, bytes)) {
      Hash128 sum;
      for (const SourceRegion& region : of_tensor) sum += region.hash;
      combined.hashes.push_back({source, sum});
    } else {
      combined.rehash.push_back(source);
    }
    first = last;
  }
  return combined;
}

std::string encode_regions(const std::vector<SourceRegion>& regions) {
  std::string bytes(regions.size() * sizeof(Record), '\0');
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const SourceRegion& r = regions[i];
    const Record record{r.source, r.offset, r.rows, r.row_bytes, r.stride, r.hash.lo, r.hash.hi};
    std::memcpy(bytes.data() + i * sizeof record, record.data(), sizeof record);
  }
  return bytes;
}

std::vector<SourceRegion> decode_regions(std::string_view bytes) {
  if (bytes.size() % sizeof(Record) != 0) {
    throw Error(Errc::kInternal,
                fmt::format("{} bytes are no list of source regions", bytes.size()));
  }
  std::vector<SourceRegion> regions(bytes.size() / sizeof(Record));
  for (std::size_t i = 0; i < regions.size(); ++i) {
    Record r;
    std::memcpy(r.data(), bytes.data() + i * sizeof r, sizeof r);
    if (r[0] > UINT32_MAX) throw Error(Errc::kInternal, "a source region of no tensor");
    regions[i] = {.source = static_cast<std::uint32_t>(r[0]),
                  .offset = r[1],
                  .rows = r[2],
                  .row_bytes = r[3],
                  .stride = r[4],
                  .hash = {.lo = r[5], .hi = r[6]}};
  }
  return regions;
}

}  // namespace preload
