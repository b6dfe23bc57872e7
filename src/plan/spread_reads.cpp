// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "base/bytes.hpp"
#include "plan/read_plan_builder.hpp"

namespace preload {

namespace {

// A part smaller than this is not worth another reader.
constexpr std::uint64_t kLeastPartBytes = kMiB;
// Parts of a row begin on multiples of this: whole elements of any type, whole pages of most files.
constexpr std::uint64_t kPartAlignment = 4 * kKiB;

std::uint64_t first_row(const FileRows& rows) noexcept {
  return rows.source_offset / rows.file_stride;
}
std::uint64_t in_row(const FileRows& rows) noexcept {
  return rows.source_offset % rows.file_stride;
}

// Bytes [begin, begin + bytes) of a single row.
HeldRows cut_bytes(const HeldRows& held, std::uint64_t begin, std::uint64_t bytes) noexcept {
  HeldRows part = held;
  part.rows.file_offset += begin;
  part.rows.source_offset += begin;
  part.rows.row_bytes = bytes;
  part.to.slab_offset += held.to.to_target(begin);
  part.to.target_offset += held.to.to_target(begin);
  part.to.bytes = bytes;
  return part;
}

// Rows [first, first + count).
HeldRows cut_rows(const HeldRows& held, std::uint64_t first, std::uint64_t count) noexcept {
  HeldRows part = held;
  part.rows.file_offset += first * held.rows.file_stride;
  part.rows.source_offset += first * held.rows.file_stride;
  part.rows.rows = count;
  part.to.slab_offset += first * held.to.target_stride;
  part.to.target_offset += first * held.to.target_stride;
  return part;
}

// Goes through what the members hold, one source tensor after the other, and deals out blocks.
class Spreader {
 public:
  Spreader(std::size_t ranks, std::uint64_t least_bytes)
      : builder_(ranks), least_bytes_(least_bytes) {}

  void add_source(std::span<HeldRows> held) {
    const auto strided =
        std::ranges::partition(held, [](const HeldRows& h) { return h.rows.rows == 1; });
    add_contiguous(held.first(held.size() - strided.size()));
    add_strided(strided);
  }

  std::vector<ReadPlan> take() { return builder_.take(); }

 private:
  // Cut where any of them begins or ends: what lies between two cuts goes to the same ranks.
  void add_contiguous(std::span<HeldRows> held) {
    std::vector<std::uint64_t> cuts;
    for (const HeldRows& h : held) {
      cuts.push_back(h.rows.source_offset);
      cuts.push_back(h.rows.source_offset + h.rows.row_bytes);
    }
    std::ranges::sort(cuts);
    cuts.erase(std::ranges::unique(cuts).begin(), cuts.end());
    std::ranges::sort(held, {}, [](const HeldRows& h) {
      return std::tuple(h.rows.source_offset, h.to.owner, h.to.tensor, h.to.target_offset);
    });
    std::vector<HeldRows> open;
    std::size_t next = 0;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const auto has_ended = [&](const HeldRows& h) {
        return h.rows.source_offset + h.rows.row_bytes <= cuts[i];
      };
      std::erase_if(open, has_ended);
      for (; next < held.size() && held[next].rows.source_offset == cuts[i]; ++next) {
        open.push_back(held[next]);
      }
      if (open.empty()) continue;
      std::vector<HeldRows> parts;
      for (const HeldRows& h : open) {
        parts.push_back(cut_bytes(h, cuts[i] - h.rows.source_offset, cuts[i + 1] - cuts[i]));
      }
      deal(parts.front().rows, parts, parts);
    }
  }

  // Slices of the same rows that lie side by side are read as one stretch of each row.
  void add_strided(std::span<HeldRows> held) {
    const auto place = [](const HeldRows& h) {
      return std::tuple(h.rows.rows, h.rows.file_stride, first_row(h.rows));
    };
    std::ranges::sort(held, {}, [&](const HeldRows& h) {
      return std::tuple_cat(place(h), std::tuple(in_row(h.rows), h.rows.row_bytes, h.to.owner,
                                                 h.to.tensor, h.to.target_offset));
    });
    for (std::size_t first = 0; first < held.size();) {
      std::uint64_t end = in_row(held[first].rows) + held[first].rows.row_bytes;
      std::size_t last = first + 1;
      for (; last < held.size() && place(held[last]) == place(held[first]) &&
             in_row(held[last].rows) <= end &&
             in_row(held[last].rows) + held[last].rows.row_bytes <= held[last].rows.file_stride;
           ++last) {
        end = std::max(end, in_row(held[last].rows) + held[last].rows.row_bytes);
      }
      add_band(held.subspan(first, last - first), end);
      first = last;
    }
  }

  // `end`: of the band's bytes in each row.
  void add_band(std::span<const HeldRows> held, std::uint64_t end) {
    FileRows band = held.front().rows;
    const std::uint64_t begin = in_row(band);
    band.row_bytes = end - begin;
    std::vector<HeldRows> parts(held.begin(), held.end());
    for (HeldRows& part : parts) part.to.begin = in_row(part.rows) - begin;
    deal(band, parts, held);
  }

  // `rows` to one of the owners, or to each a part of them; `alone` is what each owner would read
  // by itself.
  void deal(const FileRows& rows, std::span<const HeldRows> parts,
            std::span<const HeldRows> alone) {
    std::vector<std::uint32_t> owners;
    for (const HeldRows& part : parts) owners.push_back(part.to.owner);
    std::ranges::sort(owners);
    owners.erase(std::ranges::unique(owners).begin(), owners.end());
    if (owners.size() > 1 && rows.bytes() < least_bytes_) {
      for (const HeldRows& part : alone) builder_.add(part.to.owner, part.rows, {&part.to, 1});
      return;
    }
    const std::uint64_t count =
        std::clamp<std::uint64_t>(rows.bytes() / kLeastPartBytes, 1, owners.size());
    // Who has least to read so far comes first.
    std::ranges::stable_sort(owners, {},
                             [&](std::uint32_t owner) { return builder_.read_bytes(owner); });
    if (count == 1) {
      add(owners.front(), rows, parts);
      return;
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      if (rows.rows > 1) {
        const std::uint64_t first = rows.rows * i / count;
        add_rows(owners[i], rows, parts, first, rows.rows * (i + 1) / count - first);
      } else {
        const auto cut = [&](std::uint64_t k) {
          return k == count ? rows.row_bytes
                            : rows.row_bytes * k / count / kPartAlignment * kPartAlignment;
        };
        add_bytes(owners[i], parts, cut(i), cut(i + 1) - cut(i));
      }
    }
  }

  void add_rows(std::uint32_t reader, const FileRows& rows, std::span<const HeldRows> parts,
                std::uint64_t first, std::uint64_t count) {
    if (count == 0) return;
    std::vector<HeldRows> cut;
    for (const HeldRows& part : parts) cut.push_back(cut_rows(part, first, count));
    add(reader, cut_rows({rows, {}}, first, count).rows, cut);
  }

  void add_bytes(std::uint32_t reader, std::span<const HeldRows> parts, std::uint64_t begin,
                 std::uint64_t bytes) {
    std::vector<HeldRows> cut;
    for (const HeldRows& part : parts) cut.push_back(cut_bytes(part, begin, bytes));
    add(reader, cut.front().rows, cut);
  }

  void add(std::uint32_t reader, const FileRows& rows, std::span<const HeldRows> parts) {
    std::vector<Delivery> deliveries;
    for (const HeldRows& part : parts) deliveries.push_back(part.to);
    builder_.add(reader, rows, deliveries);
  }

  ReadPlanBuilder builder_;
  std::uint64_t least_bytes_;
};

}  // namespace

std::vector<ReadPlan> plan_spread_reads(std::vector<std::vector<HeldRows>> members,
                                        std::uint64_t least_bytes) {
  const std::size_t ranks = members.size();
  std::vector<HeldRows> held;
  for (std::vector<HeldRows>& member : members) {
    held.insert(held.end(), member.begin(), member.end());
    member = {};
  }
  std::ranges::stable_sort(held, {}, [](const HeldRows& h) { return h.rows.source; });
  Spreader spreader(ranks, least_bytes);
  for (std::size_t first = 0; first < held.size();) {
    std::size_t last = first;
    while (last < held.size() && held[last].rows.source == held[first].rows.source) ++last;
    spreader.add_source(std::span(held).subspan(first, last - first));
    first = last;
  }
  return spreader.take();
}

}  // namespace preload
