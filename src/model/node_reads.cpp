// SPDX-License-Identifier: Apache-2.0
#include "model/node_reads.hpp"

#include <algorithm>
#include <set>
#include <tuple>

namespace preload {

namespace {

std::uint64_t bytes_of(std::int64_t elements, unsigned bits) noexcept {
  return (static_cast<std::uint64_t>(elements) * bits + 7) / 8;
}

auto rows_of(const NodeNeed& need) noexcept { return std::tuple(need.rows.begin, need.rows.count); }

}  // namespace

void NodeReadSums::add(std::vector<NodeNeed> needs, std::int64_t columns, std::int64_t pieces,
                       unsigned element_bits) {
  std::erase_if(needs,
                [](const NodeNeed& need) { return need.rows.count * need.columns.count == 0; });
  std::ranges::sort(needs, {}, [](const NodeNeed& need) {
    return std::tuple_cat(rows_of(need), std::tuple(need.columns.begin, need.rank));
  });
  // Needs of the same rows whose columns touch are one block.
  for (std::size_t first = 0; first < needs.size();) {
    std::int64_t end = needs[first].columns.begin + needs[first].columns.count;
    std::size_t last = first + 1;
    for (; last < needs.size() && rows_of(needs[last]) == rows_of(needs[first]) &&
           needs[last].columns.begin <= end;
         ++last) {
      end = std::max(end, needs[last].columns.begin + needs[last].columns.count);
    }
    const Interval block{needs[first].columns.begin, end - needs[first].columns.begin};
    add_block(std::span(needs).subspan(first, last - first), block, columns, pieces, element_bits);
    first = last;
  }
}

// `taken` of the `columns` of each of `rows`.
void NodeReadSums::add_read(std::uint32_t rank, std::int64_t rows, std::int64_t taken,
                            std::int64_t columns, unsigned element_bits) {
  sums_[rank].read_bytes += bytes_of(rows * taken, element_bits);
  const std::uint64_t gap = bytes_of(columns - taken, element_bits);
  if (rows > 1 && gap <= kMaxGapBytes) {
    sums_[rank].gap_bytes += static_cast<std::uint64_t>(rows - 1) * gap;
  }
}

void NodeReadSums::add_block(std::span<const NodeNeed> needs, Interval block, std::int64_t columns,
                             std::int64_t pieces, unsigned element_bits) {
  std::set<std::uint32_t> owners;
  for (const NodeNeed& need : needs) owners.insert(need.rank);
  const std::int64_t rows = needs.front().rows.count;
  const std::uint64_t bytes = bytes_of(rows * block.count, element_bits);
  if (owners.size() == 1 || bytes / static_cast<std::uint64_t>(pieces) < least_bytes_) {
    for (const NodeNeed& need : needs) {
      add_read(need.rank, rows, need.columns.count, columns, element_bits);
    }
    return;
  }
  const std::uint64_t count = owners.size();
  const std::uint64_t gap = bytes_of(columns - block.count, element_bits);
  std::uint64_t index = 0;
  for (const std::uint32_t owner : owners) {
    // The whole is read once, whatever the division leaves.
    sums_[owner].read_bytes += bytes * (index + 1) / count - bytes * index / count;
    ++index;
    if (rows > 1 && gap <= kMaxGapBytes) {
      sums_[owner].gap_bytes += static_cast<std::uint64_t>(rows - 1) * gap / count;
    }
    for (const NodeNeed& need : needs) {
      if (need.rank == owner) continue;
      const std::uint64_t part = bytes_of(rows * need.columns.count, element_bits) / count;
      sums_[owner].sent_bytes += part;
      sums_[need.rank].received_bytes += part;
    }
  }
}

void NodeReadSums::add(const std::vector<RankReads>& more, std::uint64_t times) {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    sums_[i].read_bytes += times * more[i].read_bytes;
    sums_[i].gap_bytes += times * more[i].gap_bytes;
    sums_[i].sent_bytes += times * more[i].sent_bytes;
    sums_[i].received_bytes += times * more[i].received_bytes;
  }
}

}  // namespace preload
