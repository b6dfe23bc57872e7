// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <utility>

#include "model/family_layout.hpp"

namespace preload {

namespace {

// What one rank needs of a stored tensor, seen as rows of `columns` elements, as a load plan reads
// it: in `pieces` that lie apart.
struct View {
  Interval rows;
  Interval columns;
  std::int64_t row_elements = 1;
  std::int64_t pieces = 1;
};

View plain_view(const LayoutPart& part, const PartShard& shard) {
  const Interval rows{part.first_row + shard.rows.stored.begin, shard.rows.stored.count};
  return {rows, shard.columns.stored, part.own_columns(), 1};
}

// Columns lie apart; whoever needs the same of each reads the same bytes.
View transposed_view(const LayoutPart& part, const PartShard& shard, std::int64_t experts) {
  const std::int64_t columns = shard.columns.stored.count * experts;
  if (part.split == Split::kColumns) {
    const std::int64_t length = shard.rows.stored.count * experts;
    return {shard.columns.stored, {0, length}, length, columns};
  }
  const Interval rows{part.first_row + shard.rows.stored.begin, shard.rows.stored.count};
  return {rows, {0, columns}, columns, columns};
}

// All experts in one tensor, some of them whole.
View whole_experts_view(const LayoutPart& part, const LocalExperts& experts) {
  const std::int64_t expert = part.stored_rows * part.own_columns();
  const Interval within{part.first_row * part.own_columns(), part.own_rows() * part.own_columns()};
  const std::int64_t pieces = part.transposed ? experts.count * part.own_columns() : 1;
  if (experts.step == 1 || experts.count < 2) {
    return {{experts.first, experts.count}, within, expert, pieces};
  }
  return {{0, experts.count},
          {experts.first * expert + within.begin, within.count},
          experts.step * expert,
          pieces};
}

// All experts in one tensor, a slice of each.
View sliced_experts_view(const LayoutPart& part, const PartShard& shard) {
  if (part.transposed) return transposed_view(part, shard, part.experts);
  if (part.split == Split::kColumns) {
    return {{0, part.experts * part.own_rows()}, shard.columns.stored, part.own_columns(), 1};
  }
  return {{0, shard.rows.stored.count > 0 ? part.experts : 0},
          {(part.first_row + shard.rows.stored.begin) * part.own_columns(),
           shard.rows.stored.count * part.own_columns()},
          part.stored_rows * part.own_columns(),
          1};
}

// A tensor that keeps its stored axes is no transposed one: its columns are its rows.
std::pair<LayoutPart, PartShard> as_stored(LayoutPart part, PartShard shard) {
  std::swap(part.rows, part.columns);
  std::swap(part.row_block, part.column_block);
  std::swap(shard.rows, shard.columns);
  part.transposed = false;
  // Slices are cut by the other axis; parts of one tensor lie side by side in each row.
  shard.columns.stored.begin += std::exchange(part.first_row, 0);
  part.columns = std::exchange(part.stored_rows, part.own_rows());
  part.column_block = 1;
  if (part.split != Split::kReplicated) {
    part.split = part.split == Split::kColumns ? Split::kRows : Split::kColumns;
  }
  return {part, shard};
}

View view_of(const LayoutRule& rule, const LayoutPart& part, const PartShard& shard,
             const ExpertShare& experts) {
  if (rule.as_stored && part.transposed) {
    const auto [plain, cut] = as_stored(part, shard);
    return view_of(rule, plain, cut, experts);
  }
  if (part.experts > 0) {
    return experts.tp_size == 1 ? whole_experts_view(part, experts.experts)
                                : sliced_experts_view(part, shard);
  }
  return part.transposed ? transposed_view(part, shard, 1) : plain_view(part, shard);
}

}  // namespace

// Reckons what the ranks of a node read.
class FamilyLayout::Reads {
 public:
  Reads(const FamilyLayout& layout, std::span<const RankCoords> node, std::uint64_t least_bytes)
      : layout_(layout), node_(node), least_bytes_(least_bytes), sums_(node.size(), least_bytes) {
    for (const RankCoords& rank : node) shares_.push_back(layout.rank_share(rank));
  }

  std::vector<RankReads> run() && {
    layout_.each_rule(layout_.first_, [&](const LayoutRule& rule, std::size_t first) {
      const auto wanted = [&](const RankCoords& rank) { return layout_.has_first(rank, rule); };
      add_rule(rule, first, members(wanted), sums_);
    });
    std::map<int, std::vector<std::uint32_t>> stages;  // pp rank: its ranks on the node
    for (std::uint32_t i = 0; i < node_.size(); ++i) stages[node_[i].pp].push_back(i);
    for (const auto& [pp, ranks] : stages) add_layers(ranks);
    layout_.each_rule(layout_.last_, [&](const LayoutRule& rule, std::size_t first) {
      const auto wanted = [&](const RankCoords& rank) { return layout_.has_last(rank); };
      add_rule(rule, first, members(wanted), sums_);
    });
    return sums_.sums();
  }

 private:
  using Members = std::vector<std::uint32_t>;

  template <class Wanted>
  Members members(const Wanted& wanted) const {
    Members out;
    for (std::uint32_t i = 0; i < node_.size(); ++i) {
      if (wanted(node_[i])) out.push_back(i);
    }
    return out;
  }

  // Layers of one kind read alike: their sums are made once.
  void add_layers(const Members& ranks) {
    std::vector<std::uint64_t> layers(layout_.kinds_.size(), 0);
    const Interval range = layout_.layers_of(node_[ranks.front()]);
    for (std::int64_t layer = range.begin; layer < range.begin + range.count; ++layer) {
      ++layers[layout_.layers_[static_cast<std::size_t>(layer)].kind];
    }
    for (std::size_t kind = 0; kind < layers.size(); ++kind) {
      if (layers[kind] == 0) continue;
      NodeReadSums one(node_.size(), least_bytes_);
      layout_.each_rule(
          layout_.layers_[layout_.kinds_[kind]],
          [&](const LayoutRule& rule, std::size_t first) { add_rule(rule, first, ranks, one); });
      sums_.add(one.sums(), layers[kind]);
    }
  }

  void add_rule(const LayoutRule& rule, std::size_t first, const Members& ranks,
                NodeReadSums& sums) const {
    for (const LayoutPart& part : rule.parts) {
      if (part.per_expert) {
        add_experts(rule, part, first, ranks, sums);
      } else {
        add_part(rule, part, layout_.stored_dtype(first), ranks, sums);
      }
      first += layout_.sources_of(part);
    }
  }

  // Experts of the same type are alike.
  void add_experts(const LayoutRule& rule, const LayoutPart& part, std::size_t first,
                   const Members& ranks, NodeReadSums& sums) const {
    // With expert parallelism each rank has experts of its own, else all have all.
    const bool apart = shares_[ranks.front()].experts.ep_size > 1;
    const std::size_t groups = apart ? ranks.size() : 1;
    for (std::size_t group = 0; group < groups; ++group) {
      const LocalExperts& local = shares_[ranks[group]].experts.experts;
      std::map<DType, std::uint64_t> types;
      for (std::int64_t i = 0; i < local.count; ++i) {
        ++types[layout_.stored_dtype(first +
                                     static_cast<std::size_t>(local.first + i * local.step))];
      }
      for (const auto& [dtype, count] : types) {
        NodeReadSums one(node_.size(), least_bytes_);
        add_part(rule, part, dtype, apart ? Members{ranks[group]} : ranks, one);
        sums.add(one.sums(), count);
      }
    }
  }

  void add_part(const LayoutRule& rule, const LayoutPart& part, DType dtype, const Members& ranks,
                NodeReadSums& sums) const {
    std::vector<NodeNeed> needs;
    View view;
    for (const std::uint32_t rank : ranks) {
      const RankShare& share = shares_[rank];
      const PartShard shard = shard_of(part, layout_.spec_, share.of(rule.share));
      view = view_of(rule, part, shard, share.experts);
      needs.push_back({rank, view.rows, view.columns});
    }
    sums.add(std::move(needs), view.row_elements, view.pieces, dtype_bits(dtype));
  }

  const FamilyLayout& layout_;
  const std::span<const RankCoords> node_;
  const std::uint64_t least_bytes_;
  std::vector<RankShare> shares_;
  NodeReadSums sums_;
};

std::vector<RankReads> FamilyLayout::node_reads(std::span<const RankCoords> node,
                                                std::uint64_t least_bytes) const {
  return Reads(*this, node, least_bytes).run();
}

}  // namespace preload
