// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <utility>

#include "model/attributes.hpp"
#include "model/family_layout.hpp"

namespace preload {

namespace {

void append_number(std::string& text, std::int64_t number) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, number).ptr);
}

// Elements between neighbours along the axes that parts know.
struct Strides {
  std::int64_t expert = 0;
  std::int64_t row = 0;
  std::int64_t column = 0;
};

Strides strides_of(std::int64_t rows, std::int64_t columns, bool transposed) {
  if (transposed) return {rows * columns, 1, rows};
  return {rows * columns, columns, 1};
}

// Whether the engine has a single scale along an axis: of its dense weights, not of an expert.
bool is_vector(const LayoutRule& rule) {
  return rule.engine_writes ? rule.constant_vector : rule.share != Share::kExperts;
}

}  // namespace

// Makes the program of one rank, tensor by tensor in the engine's order.
class FamilyLayout::Builder {
 public:
  Builder(const FamilyLayout& layout, const RankCoords& rank)
      : layout_(layout), rank_(rank), share_(layout.rank_share(rank)) {}

  CopyProgram run() && {
    const Interval layers = layout_.layers_of(rank_);
    program_.role = layout_.family_.is_draft() ? Role::kDraft : Role::kTarget;
    program_.layout = layout_.request_.layout;
    program_.left_alone = layout_.left_alone_;
    program_.attributes_json = attributes_json(
        layout_.spec_, layout_.dtype_, {layout_.numbers_.begin + layers.begin, layers.count},
        program_, layout_.others_, layout_.draft_owns());
    add_instance(layout_.first_,
                 [&](const LayoutRule& rule) { return layout_.has_first(rank_, rule); });
    for (std::int64_t layer = layers.begin; layer < layers.begin + layers.count; ++layer) {
      prefix_ = layout_.target_layer_name(layer);
      add_instance(layout_.layers_[static_cast<std::size_t>(layer)],
                   [](const LayoutRule&) { return true; });
    }
    prefix_.clear();
    if (layout_.has_last(rank_)) {
      add_instance(layout_.last_, [](const LayoutRule&) { return true; });
    }
    return std::move(program_);
  }

 private:
  template <class Wanted>
  void add_instance(const Instance& instance, const Wanted& wanted) {
    const std::uint32_t* sources = layout_.sources_.data() + instance.first;
    for (const LayoutRule& rule : instance.section->rules) {
      if (layout_.tied(rule)) {
        add_alias(rule, rule.tied_to, "");
        continue;
      }
      if (wanted(rule)) add_rule(rule, sources);
      for (const LayoutPart& part : rule.parts) sources += layout_.sources_of(part);
    }
  }

  void add_rule(const LayoutRule& rule, const std::uint32_t* sources) {
    if (!rule.alias_of.empty()) {
      add_alias(rule, rule.alias_of, prefix_);
    } else if (rule.constant) {
      add_constant(rule);
    } else if (rule.per_expert()) {
      const LocalExperts& local = share_.experts.experts;
      for (std::int64_t i = 0; i < local.count; ++i) {
        const std::int64_t expert = local.first + i * local.step;
        add_tensor(rule, expert_name(rule.target, expert), sources + expert, {0, 1, 1});
      }
    } else {
      const bool all = rule.share == Share::kExperts;
      add_tensor(rule, target_name(rule, *sources), sources,
                 all ? share_.experts.experts : LocalExperts{0, 1, 1});
    }
  }

  // A draft's checkpoint has names of its own.
  std::string target_name(const LayoutRule& rule, std::uint32_t source) const {
    if (rule.as_stored && layout_.family_.is_draft()) {
      return layout_.checkpoint_.tensors[source].name;
    }
    return prefix_ + rule.target;
  }

  std::string expert_name(std::string_view pattern, std::int64_t expert) const {
    std::string name = prefix_;
    const std::size_t star = pattern.find('*');
    name.append(pattern.substr(0, star));
    append_number(name, expert);
    return name.append(pattern.substr(star + 1));
  }

  TargetTensor& new_tensor(const LayoutRule& rule, std::string name, DType stored) {
    TargetTensor& tensor = program_.tensors.emplace_back();
    tensor.name = std::move(name);
    tensor.dtype = layout_.target_dtype(rule, stored);
    tensor.kind = rule.kind;
    if (rule.engine_writes) tensor.cls = TensorClass::kPrivate;
    return tensor;
  }

  void add_constant(const LayoutRule& rule) {
    TargetTensor& tensor = new_tensor(rule, prefix_ + rule.target, DType::kF32);
    tensor.cls = TensorClass::kPrivate;
    tensor.fill = rule.constant;
    if (rule.constant_vector) tensor.shape = tensor.strides = Dims{1};
  }

  // One target of some experts, from parts that follow each other along the rows' axis.
  void add_tensor(const LayoutRule& rule, std::string name, const std::uint32_t* sources,
                  const LocalExperts& experts) {
    TargetTensor& tensor =
        new_tensor(rule, std::move(name), layout_.checkpoint_.tensors[*sources].dtype);
    shards_.clear();
    std::int64_t rows = 0;
    for (const LayoutPart& part : rule.parts) {
      shards_.push_back(shard_of(part, layout_.spec_, share_.of(rule.share)));
      rows += shards_.back().rows.extent;
    }
    const LayoutPart& front = rule.parts.front();
    if (front.whole) {
      tensor.shape = *front.whole;
      tensor.strides = contiguous_strides(tensor.shape);
      add_move(tensor, front, shards_.front(), *sources, experts, {0, 1, 1}, 0);
      return;
    }
    const std::int64_t columns = shards_.front().columns.extent;
    const bool turned = rule.as_stored && front.transposed;
    const Strides target = strides_of(rows, columns, turned);
    if (rule.share == Share::kExperts && !rule.per_expert()) tensor.shape.push_back(experts.count);
    if (turned) {
      tensor.shape.push_back(columns);
      tensor.shape.push_back(rows);
    } else {
      const bool single = front.scalar && rule.parts.size() == 1;
      if (!single || is_vector(rule)) tensor.shape.push_back(rows);
      const std::int64_t group = rule.as_stored ? front.group : 0;
      if (!front.one_axis()) tensor.shape.push_back(group > 0 ? columns / group : columns);
      if (group > 0) tensor.shape.push_back(group);
    }
    if (rule.as_stored && front.scalar) {
      tensor.shape = layout_.checkpoint_.tensors[*sources].shape;
    }
    tensor.strides = contiguous_strides(tensor.shape);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < rule.parts.size(); ++i) {
      const LayoutPart& part = rule.parts[i];
      const PartShard& shard = shards_[i];
      if (shard.stored_elements() < shard.elements() && experts.count > 0) tensor.fill = 0.0;
      if (shard.stored_elements() > 0 && experts.count > 0) {
        if (part.per_expert) {
          for (std::int64_t e = 0; e < experts.count; ++e) {
            add_move(tensor, part, shard, sources[experts.first + e * experts.step], {0, 1, 1},
                     target, row * target.row + e * target.expert);
          }
        } else {
          add_move(tensor, part, shard, *sources, experts, target, row * target.row);
        }
      }
      row += shard.rows.extent;
      sources += layout_.sources_of(part);
    }
  }

  void add_move(TargetTensor& tensor, const LayoutPart& part, const PartShard& shard,
                std::uint32_t source, const LocalExperts& experts, const Strides& target,
                std::int64_t target_offset) const {
    const Strides stored = strides_of(part.stored_rows, part.own_columns(), part.transposed);
    Move& move = tensor.moves.emplace_back();
    move.source = source;
    move.target_offset = target_offset;
    move.conversion = layout_.checkpoint_.tensors[source].dtype == tensor.dtype
                          ? Conversion::kNone
                          : Conversion::kValue;
    move.source_offset = (part.first_row + shard.rows.stored.begin) * stored.row +
                         shard.columns.stored.begin * stored.column;
    const auto add_axis = [&](std::int64_t size, std::int64_t from, std::int64_t to) {
      move.sizes.push_back(size);
      move.source_strides.push_back(from);
      move.target_strides.push_back(to);
    };
    if (part.experts > 0) {
      move.source_offset += experts.first * stored.expert;
      add_axis(experts.count, experts.step * stored.expert, target.expert);
    }
    add_axis(shard.rows.stored.count, stored.row, target.row);
    if (!part.one_axis()) add_axis(shard.columns.stored.count, stored.column, target.column);
  }

  void add_alias(const LayoutRule& rule, std::string_view of, std::string_view prefix) {
    const std::string whole_name = std::string(prefix).append(of);
    const auto is_whole = [&](const TargetTensor& tensor) { return tensor.name == whole_name; };
    const auto found = std::find_if(program_.tensors.rbegin(), program_.tensors.rend(), is_whole);
    const auto index = static_cast<std::uint32_t>(program_.tensors.rend() - found - 1);
    TargetTensor alias = *found;
    alias.name = prefix_ + rule.target;
    alias.moves.clear();
    alias.fill.reset();
    alias.alias = index;
    program_.tensors.push_back(std::move(alias));
  }

  const FamilyLayout& layout_;
  const RankCoords rank_;
  const RankShare share_;
  CopyProgram program_;
  std::string prefix_;  // "model.layers.7.", empty outside of layers
  std::vector<PartShard> shards_;
};

CopyProgram FamilyLayout::program(const RankCoords& rank) const {
  return Builder(*this, rank).run();
}

}  // namespace preload
