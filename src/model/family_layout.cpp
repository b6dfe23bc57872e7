// SPDX-License-Identifier: Apache-2.0
#include "model/family_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "model/extent.hpp"
#include "model/family_matcher.hpp"
#include "model/target_dtype.hpp"

namespace preload {
namespace {

RuleStyle style_of(std::string_view layout) {
  if (layout == "vllm") return RuleStyle::kEngine;
  return layout == "transformers" ? RuleStyle::kTransformers : RuleStyle::kAsStored;
}

// The one type of the floats; nothing where each is as stored.
std::optional<DType> layout_dtype(RuleStyle style, const Checkpoint& checkpoint,
                                  const ModelSpec& spec, const std::optional<DType>& requested) {
  if (style == RuleStyle::kEngine) return engine_dtype(checkpoint, spec, requested);
  if (style == RuleStyle::kTransformers) return transformers_dtype(checkpoint, spec, requested);
  return requested;
}

}  // namespace

FamilyLayout::FamilyLayout(const Family& family, const Checkpoint& checkpoint,
                           const ModelSpec& spec, const LayoutRequest& request,
                           const ParallelSizes& sizes, std::optional<WeightFormat> format)
    : family_(family),
      checkpoint_(checkpoint),
      spec_(spec),
      request_(request),
      sizes_(sizes),
      numbers_(family.is_draft() ? family.draft.layers(spec) : Interval{0, spec.num_hidden_layers}),
      style_(style_of(request.layout)),
      dtype_(layout_dtype(style_, checkpoint, spec, request.dtype)),
      format_(std::move(format)) {
  Matcher(*this).run();
  // Layers whose tensors have the same types are alike in all that is reckoned.
  std::map<std::pair<const Section*, std::vector<DType>>, std::uint32_t> kinds;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    Instance& instance = layers_[layer];
    std::vector<DType> types;
    types.reserve(instance.section->sources);
    for (std::size_t i = 0; i < instance.section->sources; ++i) {
      types.push_back(stored_dtype(instance.first + i));
    }
    const auto [at, is_new] = kinds.try_emplace({instance.section, std::move(types)},
                                                static_cast<std::uint32_t>(kinds_.size()));
    instance.kind = at->second;
    if (is_new) kinds_.push_back(layer);
  }
}

ShareSize FamilyLayout::share(const RankCoords& rank) const {
  const RankShare part = rank_share(rank);
  ShareSize total;
  const auto add = [&](const ShareSize& more, std::uint64_t times) {
    total.held_bytes += times * more.held_bytes;
    total.read_bytes += times * more.read_bytes;
  };
  each_rule(first_, [&](const LayoutRule& rule, std::size_t first) {
    if (has_first(rank, rule)) add(share_of(rule, first, part), 1);
  });
  std::vector<std::uint64_t> layers(kinds_.size(), 0);
  const Interval range = layers_of(rank);
  for (std::int64_t layer = range.begin; layer < range.begin + range.count; ++layer) {
    ++layers[layers_[static_cast<std::size_t>(layer)].kind];
  }
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    if (layers[kind] == 0) continue;
    each_rule(layers_[kinds_[kind]], [&](const LayoutRule& rule, std::size_t first) {
      add(share_of(rule, first, part), layers[kind]);
    });
  }
  if (has_last(rank)) {
    each_rule(last_, [&](const LayoutRule& rule, std::size_t first) {
      add(share_of(rule, first, part), 1);
    });
  }
  return total;
}

int FamilyLayout::share_id(const RankCoords& rank) const noexcept {
  const bool by_dp = family_.experts.sparse != nullptr;
  return ((by_dp ? rank.dp : 0) * sizes_.pp + rank.pp) * sizes_.tp + rank.tp;
}

LayoutNotes FamilyLayout::notes() const {
  LayoutNotes notes;
  if (family_.experts.sparse == nullptr) return notes;
  const std::string fallback = placement_fallback(family_, spec_, request_, sizes_);
  if (!fallback.empty()) {
    notes.warnings.push_back(
        fmt::format("experts are placed linearly, not round-robin: {}", fallback));
  }
  if (style_ == RuleStyle::kEngine && dtype_ && pads_experts(spec_, request_, sizes_, *dtype_)) {
    notes.warnings.push_back(fmt::format(
        "--all2all-backend {} makes vLLM pad the experts' hidden_size {}, which is not built: an "
        "engine with that backend will find other shapes",
        request_.all2all_backend, spec_.hidden_size));
  }
  const int ranks = rank_share(coords_of(0, sizes_)).experts.ep_size;
  if (ranks > spec_.num_experts) {
    notes.unservable = fmt::format(
        "{} experts are fewer than the {} ranks of expert parallelism (--data-parallel-size {} x "
        "--tensor-parallel-size {}), so that some would hold none",
        spec_.num_experts, ranks, sizes_.dp, sizes_.tp);
  }
  return notes;
}

ShareSize FamilyLayout::share_of(const LayoutRule& rule, std::size_t first,
                                 const RankShare& rank) const {
  ShareSize share;
  if (rule.constant) share.held_bytes += element_bytes(1, target_dtype(rule, DType::kF32));
  const LocalExperts& local = rank.experts.experts;
  for (const LayoutPart& part : rule.parts) {
    const PartShard shard = shard_of(part, spec_, rank.of(rule.share));
    const auto add = [&](DType stored, std::int64_t times) {
      share.held_bytes += element_bytes(times * shard.elements(), target_dtype(rule, stored));
      share.read_bytes += element_bytes(times * shard.stored_elements(), stored);
    };
    if (part.per_expert) {
      for (std::int64_t i = 0; i < local.count; ++i) {
        add(stored_dtype(first + static_cast<std::size_t>(local.first + i * local.step)), 1);
      }
    } else {
      add(stored_dtype(first), part.experts > 0 ? local.count : 1);
    }
    first += sources_of(part);
  }
  return share;
}

bool FamilyLayout::tied(const LayoutRule& rule) const noexcept {
  return spec_.tie_word_embeddings && !rule.tied_to.empty();
}

bool FamilyLayout::is_tie_target(const LayoutRule& rule) const noexcept {
  return std::ranges::any_of(last_section_.rules, [&](const LayoutRule& other) {
    return tied(other) && other.tied_to == rule.target;
  });
}

bool FamilyLayout::has_first(const RankCoords& rank, const LayoutRule& rule) const noexcept {
  return rank.pp == 0 || family_.ends_on_every_stage || (has_last(rank) && is_tie_target(rule));
}

bool FamilyLayout::has_last(const RankCoords& rank) const noexcept {
  return rank.pp == sizes_.pp - 1 || family_.ends_on_every_stage;
}

bool FamilyLayout::has_experts(std::int64_t layer) const {
  return family_.experts.sparse != nullptr && family_.experts.sparse(spec_, numbers_.begin + layer);
}

Interval FamilyLayout::layers_of(const RankCoords& rank) const noexcept {
  return stage_layers(numbers_.count, sizes_, rank.pp);
}

std::optional<DraftOwns> FamilyLayout::draft_owns() const {
  if (!family_.is_draft()) return std::nullopt;
  DraftOwns owns;
  const auto look = [&](const Section& section) {
    for (const LayoutRule& rule : section.rules) {
      owns.embed_tokens = owns.embed_tokens || rule.target == "model.embed_tokens.weight";
      owns.lm_head = owns.lm_head || rule.target == "lm_head.weight" ||
                     rule.target == "shared_head.head.weight";
    }
  };
  look(first_section_);
  std::ranges::for_each(layer_sections_, look);
  look(last_section_);
  return owns;
}

std::size_t FamilyLayout::kind_of(std::int64_t layer) const {
  return (family_.draft.joins ? layer > 0 : has_experts(layer)) ? 1 : 0;
}

std::string FamilyLayout::layer_name(std::int64_t layer) const {
  return fmt::format("{}{}.", with_prefixes(family_.layer_prefix, stored_names_),
                     numbers_.begin + layer);
}

std::string FamilyLayout::target_layer_name(std::int64_t layer) const {
  return fmt::format(
      "{}{}.", with_prefixes(family_.layer_prefix, target_prefixes(family_, style_, stored_names_)),
      numbers_.begin + layer);
}

RankShare FamilyLayout::rank_share(const RankCoords& rank) const {
  return {{sizes_.tp, rank.tp}, expert_share(family_, spec_, request_, sizes_, rank)};
}

std::size_t FamilyLayout::sources_of(const LayoutPart& part) const noexcept {
  return part.per_expert ? static_cast<std::size_t>(spec_.num_experts) : 1;
}

DType FamilyLayout::target_dtype(const LayoutRule& rule, DType stored) const noexcept {
  if (rule.dtype) return *rule.dtype;
  if (rule.content == Content::kQuantised) return stored;
  if (rule.content == Content::kScale) return style_ == RuleStyle::kEngine ? DType::kF32 : stored;
  return stored_or_cast(stored, dtype_);
}

DType FamilyLayout::stored_dtype(std::size_t source) const noexcept {
  return checkpoint_.tensors[sources_[source]].dtype;
}

}  // namespace preload
