// SPDX-License-Identifier: Apache-2.0
#include "plan/region_tiling.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

namespace preload {

namespace {

constexpr std::uint64_t kMaxIntervals = 1 << 21;

struct Interval {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::uint64_t region_end(const SourceRegion& region) {
  return region.offset + (region.rows - 1) * region.stride + region.row_bytes;
}

// A region as rows × columns of a matrix whose rows are `stride` bytes long.
struct Rectangle {
  Interval rows;
  Interval columns;
};

// Rectangles in a matrix that starts at byte `base`, or nothing when a region does not fit one.
std::optional<std::vector<Rectangle>> rectangles(std::span<const SourceRegion> regions,
                                                 std::uint64_t base, std::uint64_t stride) {
  std::vector<Rectangle> out;
  out.reserve(regions.size());
  for (const SourceRegion& region : regions) {
    const std::uint64_t row = (region.offset - base) / stride;
    const std::uint64_t column = (region.offset - base) % stride;
    if (region.rows > 1 && region.stride != stride) return std::nullopt;
    if (column + region.row_bytes <= stride) {
      out.push_back({{row, row + region.rows}, {column, column + region.row_bytes}});
    } else if (region.rows == 1 && column == 0 && region.row_bytes % stride == 0) {
      out.push_back({{row, row + region.row_bytes / stride}, {0, stride}});
    } else {
      return std::nullopt;
    }
  }
  return out;
}

// Sweeps over the rows; the columns in use at a row are kept as disjoint intervals.
bool disjoint(std::vector<Rectangle> rectangles) {
  struct Event {
    std::uint64_t row;
    bool begins;
    Interval columns;
  };
  std::vector<Event> events;
  events.reserve(2 * rectangles.size());
  for (const Rectangle& r : rectangles) {
    events.push_back({r.rows.begin, true, r.columns});
    events.push_back({r.rows.end, false, r.columns});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tie(a.row, a.begins) < std::tie(b.row, b.begins);  // ends before beginnings
  });
  std::map<std::uint64_t, std::uint64_t> active;  // begin → end
  for (const Event& event : events) {
    if (!event.begins) {
      active.erase(event.columns.begin);
      continue;
    }
    const auto next = active.lower_bound(event.columns.begin);
    if (next != active.end() && next->first < event.columns.end) return false;
    if (next != active.begin() && std::prev(next)->second > event.columns.begin) return false;
    active.emplace_hint(next, event.columns.begin, event.columns.end);
  }
  return true;
}

// Every row on its own: for regions that form no matrix together.
bool disjoint_rows(std::span<const SourceRegion> regions) {
  std::uint64_t count = 0;
  for (const SourceRegion& region : regions) {
    count += region.rows;
    if (count > kMaxIntervals) return false;
  }
  std::vector<Interval> rows;
  rows.reserve(count);
  for (const SourceRegion& region : regions) {
    for (std::uint64_t r = 0; r < region.rows; ++r) {
      const std::uint64_t begin = region.offset + r * region.stride;
      rows.push_back({begin, begin + region.row_bytes});
    }
  }
  std::sort(rows.begin(), rows.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i].begin < rows[i - 1].end) return false;
  }
  return true;
}

// Regions whose spans overlap one another: only these can share a byte.
bool disjoint_group(std::span<const SourceRegion> regions) {
  if (regions.size() == 1) return true;
  std::uint64_t stride = 0;
  for (const SourceRegion& region : regions) stride = std::max(stride, region.stride);
  if (stride == 0) return false;  // single rows with overlapping spans
  if (auto matrix = rectangles(regions, regions.front().offset, stride)) {
    return disjoint(std::move(*matrix));
  }
  return disjoint_rows(regions);
}

}  // namespace

bool tiles(std::span<const SourceRegion> regions, std::uint64_t bytes) {
  std::vector<SourceRegion> sorted(regions.begin(), regions.end());
  std::sort(sorted.begin(), sorted.end(), [](const SourceRegion& a, const SourceRegion& b) {
    return std::tie(a.offset, a.row_bytes) < std::tie(b.offset, b.row_bytes);
  });
  std::uint64_t covered = 0;
  for (const SourceRegion& region : sorted) {
    if (region.rows > 1 && region.stride < region.row_bytes) return false;  // overlaps itself
    covered += region.rows * region.row_bytes;
    if (covered > bytes) return false;
  }
  // As many bytes as the tensor has, none of them twice: then none is missing.
  if (covered != bytes) return false;
  for (std::size_t first = 0; first < sorted.size();) {
    std::uint64_t end = region_end(sorted[first]);
    std::size_t last = first + 1;
    while (last < sorted.size() && sorted[last].offset < end) {
      end = std::max(end, region_end(sorted[last++]));
    }
    if (!disjoint_group(std::span(sorted).subspan(first, last - first))) return false;
    first = last;
  }
  return true;
}

}  // namespace preload
