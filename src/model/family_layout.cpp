// SPDX-License-Identifier: Apache-2.0
#include "model/family_layout.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "model/attributes.hpp"
#include "model/extent.hpp"
#include "model/family_matcher.hpp"
#include "model/part_shard.hpp"
#include "model/target_dtype.hpp"

namespace preload {

// Makes the program of one rank, tensor by tensor in the engine's order.
class FamilyLayout::Builder {
 public:
  Builder(const FamilyLayout& layout, const RankCoords& rank) : layout_(layout), rank_(rank) {}

  CopyProgram run() && {
    const Interval layers =
        stage_layers(layout_.spec_.num_hidden_layers, layout_.sizes_.pp, rank_.pp);
    program_.role = layout_.role_;
    program_.layout = layout_.fused_ ? "vllm" : "hf";
    program_.left_alone = layout_.left_alone_;
    program_.attributes_json = attributes_json(layout_.spec_, layout_.dtype_, layers);
    const std::size_t per_layer =
        layout_.fused_ ? layout_.layer_.rules.size() : layout_.layer_.parts;
    program_.tensors.reserve(per_layer * static_cast<std::size_t>(layers.count) + 8);

    const bool last = rank_.pp == layout_.sizes_.pp - 1;
    add_section(layout_.first_, 0, [&](const Rule& rule) {
      return rank_.pp == 0 || (last && layout_.is_tie_target(rule));
    });
    for (std::int64_t layer = layers.begin; layer < layers.begin + layers.count; ++layer) {
      set_prefix(layer);
      add_section(layout_.layer_, static_cast<std::size_t>(layer),
                  [](const Rule&) { return true; });
    }
    prefix_.clear();
    if (last) add_section(layout_.last_, 0, [](const Rule&) { return true; });
    return std::move(program_);
  }

 private:
  void set_prefix(std::int64_t layer) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, layer).ptr;
    prefix_.assign(layout_.family_.layer_prefix).append(digits, end).push_back('.');
  }

  template <class Wanted>
  void add_section(const Section& section, std::size_t instance, const Wanted& wanted) {
    const std::uint32_t* sources = section.sources.data() + instance * section.parts;
    for (const Rule* rule : section.rules) {
      if (layout_.tied(*rule)) {
        add_alias(*rule);
        continue;
      }
      if (wanted(*rule)) add_rule(*rule, sources);
      sources += rule->parts.size();
    }
  }

  void add_rule(const Rule& rule, const std::uint32_t* sources) {
    if (layout_.fused_) {
      add_tensor(rule.target, rule.parts, sources);
      return;
    }
    for (std::size_t i = 0; i < rule.parts.size(); ++i) {
      add_tensor(rule.parts[i].stored, rule.parts.subspan(i, 1), sources + i);
    }
  }

  // One target from parts that follow each other along the first axis.
  void add_tensor(std::string_view name, std::span<const Part> parts,
                  const std::uint32_t* sources) {
    TargetTensor& tensor = program_.tensors.emplace_back();
    tensor.name.reserve(prefix_.size() + name.size());
    tensor.name.append(prefix_).append(name);
    tensor.dtype = layout_.target_dtype(layout_.checkpoint_.tensors[*sources].dtype);
    tensor.moves.reserve(parts.size());
    const bool one_axis = parts.front().columns == Extent::kOne;
    std::int64_t rows = 0;
    std::int64_t columns = 1;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const PartShard shard = shard_of(parts[i], layout_.spec_, layout_.sizes_.tp, rank_.tp);
      columns = shard.columns.extent;
      if (shard.stored_elements() > 0) {
        tensor.moves.push_back(move_of(parts[i], shard, sources[i], rows * columns, tensor.dtype));
      }
      if (shard.stored_elements() < shard.elements()) tensor.fill = 0.0;
      rows += shard.rows.extent;
    }
    tensor.shape = one_axis ? Dims{rows} : Dims{rows, columns};
    tensor.strides = contiguous_strides(tensor.shape);
  }

  Move move_of(const Part& part, const PartShard& shard, std::uint32_t source,
               std::int64_t target_offset, DType dtype) const {
    const SourceTensor& stored = layout_.checkpoint_.tensors[source];
    Move move;
    move.source = source;
    move.target_offset = target_offset;
    move.conversion = stored.dtype == dtype ? Conversion::kNone : Conversion::kValue;
    const std::int64_t stored_columns = extent_of(part.columns, layout_.spec_);
    move.source_offset = shard.rows.stored.begin * stored_columns + shard.columns.stored.begin;
    move.sizes = {shard.rows.stored.count};
    move.source_strides = {stored_columns};
    move.target_strides = {shard.columns.extent};
    if (part.columns != Extent::kOne) {
      move.sizes.push_back(shard.columns.stored.count);
      move.source_strides.push_back(1);
      move.target_strides.push_back(1);
    }
    return move;
  }

  void add_alias(const Rule& rule) {
    const auto whole = std::ranges::find(program_.tensors, rule.tied_to, &TargetTensor::name);
    TargetTensor alias = *whole;
    alias.name = layout_.fused_ ? rule.target : rule.parts.front().stored;
    alias.moves.clear();
    alias.fill.reset();
    alias.alias = static_cast<std::uint32_t>(whole - program_.tensors.begin());
    program_.tensors.push_back(std::move(alias));
  }

  const FamilyLayout& layout_;
  const RankCoords rank_;
  CopyProgram program_;
  std::string prefix_;  // "model.layers.7.", empty outside of layers
};

FamilyLayout::FamilyLayout(const Family& family, const Checkpoint& checkpoint,
                           const ModelSpec& spec, const LayoutRequest& request,
                           const ParallelSizes& sizes)
    : family_(family),
      checkpoint_(checkpoint),
      spec_(spec),
      sizes_(sizes),
      role_(request.draft ? Role::kDraft : Role::kTarget),
      fused_(request.layout == "vllm"),
      dtype_(fused_ ? engine_dtype(checkpoint, spec, request.dtype) : request.dtype) {
  Matcher(*this).run(request);
  layer_sums_.resize(static_cast<std::size_t>(spec.num_hidden_layers) + 1);
  for (std::size_t layer = 0; layer + 1 < layer_sums_.size(); ++layer) {
    ShareSize sum = layer_sums_[layer];
    const std::uint32_t* sources = layer_.sources.data() + layer * layer_.parts;
    for (const Rule* rule : layer_.rules) {
      const ShareSize share = share_of(*rule, sources, 0);
      sum.held_bytes += share.held_bytes;
      sum.read_bytes += share.read_bytes;
      sources += rule->parts.size();
    }
    layer_sums_[layer + 1] = sum;
  }
}

CopyProgram FamilyLayout::program(const RankCoords& rank) const {
  return Builder(*this, rank).run();
}

ShareSize FamilyLayout::share(const RankCoords& rank) const {
  const Interval layers = stage_layers(spec_.num_hidden_layers, sizes_.pp, rank.pp);
  const ShareSize& end = layer_sums_[static_cast<std::size_t>(layers.begin + layers.count)];
  const ShareSize& begin = layer_sums_[static_cast<std::size_t>(layers.begin)];
  ShareSize total{end.held_bytes - begin.held_bytes, end.read_bytes - begin.read_bytes};
  const bool last = rank.pp == sizes_.pp - 1;
  const auto add = [&](const Section& section, const auto& wanted) {
    const std::uint32_t* sources = section.sources.data();
    for (const Rule* rule : section.rules) {
      if (tied(*rule)) continue;
      if (wanted(*rule)) {
        const ShareSize share = share_of(*rule, sources, rank.tp);
        total.held_bytes += share.held_bytes;
        total.read_bytes += share.read_bytes;
      }
      sources += rule->parts.size();
    }
  };
  add(first_, [&](const Rule& rule) { return rank.pp == 0 || (last && is_tie_target(rule)); });
  add(last_, [&](const Rule&) { return last; });
  return total;
}

ShareSize FamilyLayout::share_of(const Rule& rule, const std::uint32_t* sources,
                                 int tp_rank) const {
  ShareSize share;
  for (std::size_t i = 0; i < rule.parts.size(); ++i) {
    const PartShard shard = shard_of(rule.parts[i], spec_, sizes_.tp, tp_rank);
    const DType stored = checkpoint_.tensors[sources[i]].dtype;
    share.held_bytes += element_bytes(shard.elements(), target_dtype(stored));
    share.read_bytes += element_bytes(shard.stored_elements(), stored);
  }
  return share;
}

void FamilyLayout::add_reads(const Rule& rule, const std::uint32_t* sources,
                             std::span<const std::uint32_t> members,
                             std::span<const RankCoords> node, NodeReadSums& sums) const {
  for (std::size_t i = 0; i < rule.parts.size(); ++i) {
    std::vector<NodeNeed> needs;
    for (const std::uint32_t member : members) {
      const PartShard shard = shard_of(rule.parts[i], spec_, sizes_.tp, node[member].tp);
      needs.push_back({member, shard.rows.stored, shard.columns.stored});
    }
    const SourceTensor& source = checkpoint_.tensors[sources[i]];
    sums.add(std::move(needs), source.shape.size() > 1 ? source.shape[1] : 1,
             dtype_bits(source.dtype));
  }
}

std::vector<RankReads> FamilyLayout::node_reads(std::span<const RankCoords> node,
                                                std::uint64_t least_bytes) const {
  std::map<int, std::vector<std::uint32_t>> stages;  // pp rank: its ranks on the node
  for (std::uint32_t i = 0; i < node.size(); ++i) stages[node[i].pp].push_back(i);
  NodeReadSums sums(node.size(), least_bytes);
  for (const auto& [pp, members] : stages) {
    const Interval layers = stage_layers(spec_.num_hidden_layers, sizes_.pp, pp);
    // Layers whose parts have the same types read alike: their sums are made once.
    std::map<std::vector<DType>, std::vector<RankReads>> known;
    for (std::int64_t layer = layers.begin; layer < layers.begin + layers.count; ++layer) {
      const std::uint32_t* const sources =
          layer_.sources.data() + static_cast<std::size_t>(layer) * layer_.parts;
      std::vector<DType> types;
      for (std::size_t i = 0; i < layer_.parts; ++i) {
        types.push_back(checkpoint_.tensors[sources[i]].dtype);
      }
      const auto [at, is_new] = known.try_emplace(std::move(types));
      if (is_new) {
        NodeReadSums one(node.size(), least_bytes);
        const std::uint32_t* next = sources;
        for (const Rule* rule : layer_.rules) {
          add_reads(*rule, next, members, node, one);
          next += rule->parts.size();
        }
        at->second = one.sums();
      }
      sums.add(at->second);
    }
  }
  const auto add_section = [&](const Section& section, const auto& wanted) {
    const std::uint32_t* sources = section.sources.data();
    for (const Rule* rule : section.rules) {
      if (tied(*rule)) continue;
      std::vector<std::uint32_t> members;
      for (std::uint32_t i = 0; i < node.size(); ++i) {
        if (wanted(*rule, node[i])) members.push_back(i);
      }
      add_reads(*rule, sources, members, node, sums);
      sources += rule->parts.size();
    }
  };
  const auto is_last = [&](const RankCoords& rank) { return rank.pp == sizes_.pp - 1; };
  add_section(first_, [&](const Rule& rule, const RankCoords& rank) {
    return rank.pp == 0 || (is_last(rank) && is_tie_target(rule));
  });
  add_section(last_, [&](const Rule&, const RankCoords& rank) { return is_last(rank); });
  return sums.sums();
}

bool FamilyLayout::tied(const Rule& rule) const noexcept {
  return spec_.tie_word_embeddings && !rule.tied_to.empty();
}

bool FamilyLayout::is_tie_target(const Rule& rule) const noexcept {
  return std::ranges::any_of(last_.rules, [&](const Rule* other) {
    return tied(*other) && other->tied_to == rule.target;
  });
}

DType FamilyLayout::target_dtype(DType stored) const noexcept {
  return fused_ ? *dtype_ : stored_or_cast(stored, dtype_);
}

}  // namespace preload
