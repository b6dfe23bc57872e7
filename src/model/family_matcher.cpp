// SPDX-License-Identifier: Apache-2.0
#include "model/family_matcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>

#include "base/error.hpp"
#include "checkpoint/problems.hpp"
#include "model/left_alone.hpp"
#include "model/part_shard.hpp"

namespace preload {
namespace {

constexpr std::size_t kListed = 64;  // names in one line of a refusal

// "1 tensor", "3 tensors".
std::string count_tensors(std::size_t count) {
  return fmt::format("{} tensor{}", count, count == 1 ? "" : "s");
}

}  // namespace

FamilyLayout::Matcher::Matcher(FamilyLayout& layout)
    : layout_(layout),
      names_(layout.checkpoint_),
      consumed_(layout.checkpoint_.tensors.size(), false),
      reasons_(layout.checkpoint_.tensors.size()) {}

void FamilyLayout::Matcher::run() {
  check_numbers();
  throw_if_any();
  choose_names();
  select_rules();
  throw_if_any();
  layout_.first_ = match(layout_.first_section_, "");
  const auto layers = static_cast<std::size_t>(layout_.numbers_.count);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    // A config that promises far more layers than are stored is one fault, not thousands.
    if (missing_.size() > layout_.checkpoint_.tensors.size() + kListed) break;
    const std::string prefix = layout_.layer_name(static_cast<std::int64_t>(layer));
    layout_.layers_.push_back(match(layer_section(layer, prefix), prefix));
  }
  layout_.last_ = match(layout_.last_section_, "");
  leave_tied_alone();
  leave_draft_layers_alone();
  leave_target_alone();
  leave_unused_alone();
  serve_others();
  check_parallelism();
  sort_out();
  throw_if_any();
}

void FamilyLayout::Matcher::check_numbers() {
  const ModelSpec& spec = layout_.spec_;
  const std::pair<std::string_view, std::int64_t> needed[] = {
      {"hidden_size", spec.hidden_size},
      {"num_hidden_layers", spec.num_hidden_layers},
      {"num_attention_heads", spec.num_attention_heads},
      {"vocab_size", spec.vocab_size},
  };
  for (const auto& [name, value] : needed) {
    if (value < 1) problems_.push_back(fmt::format("config.json states no \"{}\"", name));
  }
  if (layout_.family_.experts.sparse && spec.num_experts < 1) {
    problems_.emplace_back("config.json states no number of experts");
  }
  if (layout_.family_.draft.in_target && layout_.numbers_.count < 1) {
    problems_.emplace_back(
        "config.json states no layers behind the model's last one that a draft could consist of");
  }
  if (!problems_.empty()) return;
  if (spec.head_dim < 1) {
    problems_.push_back(
        fmt::format("hidden_size {} is smaller than num_attention_heads {}, and "
                    "config.json states no \"head_dim\"",
                    spec.hidden_size, spec.num_attention_heads));
  }
}

void FamilyLayout::Matcher::check_parallelism() {
  const ModelSpec& spec = layout_.spec_;
  const ParallelSizes& sizes = layout_.sizes_;
  const auto& stages = sizes.stage_layers;
  if (sizes.pp > 1 && sizes.pp > spec.num_hidden_layers) {
    problems_.push_back(
        fmt::format("num_hidden_layers {} cannot be split over "
                    "--pipeline-parallel-size {} stages",
                    spec.num_hidden_layers, sizes.pp));
  }
  const std::int64_t placed = std::accumulate(stages.begin(), stages.end(), std::int64_t{0});
  if (!stages.empty() && placed != spec.num_hidden_layers) {
    problems_.push_back(
        fmt::format("--pipeline-layers {} places {} layers, num_hidden_layers is {}",
                    fmt::join(stages, ","), placed, spec.num_hidden_layers));
  }
  const Experts& experts = layout_.family_.experts;
  if (sizes.expert_parallel && !experts.sparse) {
    problems_.push_back(
        fmt::format("--enable-expert-parallel is for models with experts, which {} has not",
                    spec.architecture));
  }
  const int ranks = sizes.dp * sizes.tp;
  if (sizes.expert_parallel && experts.even && spec.num_experts % ranks != 0) {
    problems_.push_back(fmt::format(
        "{} experts do not divide by the {} ranks of expert parallelism (--data-parallel-size {} x "
        "--tensor-parallel-size {}), and vLLM loads {} only where they do",
        spec.num_experts, ranks, sizes.dp, sizes.tp, spec.architecture));
  }
  const RankShare share = layout_.rank_share(coords_of(0, sizes));
  const auto check_rules = [&](const Section& section) {
    for (const LayoutRule& rule : section.rules) {
      if (layout_.tied(rule)) continue;
      for (std::string& reason : indivisible(rule, spec, share)) {
        if (std::ranges::find(problems_, reason) == problems_.end()) {
          problems_.push_back(std::move(reason));
        }
      }
    }
  };
  check_rules(layout_.first_section_);
  std::ranges::for_each(layout_.layer_sections_, check_rules);
  check_rules(layout_.last_section_);
}

// How the checkpoint calls what multimodal checkpoints have in several ways.
void FamilyLayout::Matcher::choose_names() {
  const auto& known = layout_.family_.multimodal.stored;
  if (known.empty()) return;
  layout_.stored_names_ = known.front();
  for (const NamePrefixes& names : known) {
    if (names_.find(with_prefixes("model.norm.weight", names))) layout_.stored_names_ = names;
  }
}

void FamilyLayout::Matcher::adapt_to_transformers(std::vector<LayoutRule>& rules) const {
  const std::string_view in_float32 = layout_.family_.float32_in_float16;
  for (LayoutRule& rule : rules) {
    const bool wide = !in_float32.empty() && layout_.dtype_ == DType::kF16 &&
                      rule.target.find(in_float32) != std::string::npos;
    if (wide) rule.dtype = DType::kF32;
    if (rule.dtype == DType::kF32 && layout_.dtype_ == DType::kF64) rule.dtype = DType::kF64;
    // Where both are stored transformers ties them only if they are equal: two tensors are right
    // either way.
    if (!rule.tied_to.empty() && names_.find(rule.parts.front().stored)) rule.tied_to.clear();
  }
}

void FamilyLayout::Matcher::select_rules() {
  const auto rules_of = [&](Scope scope, Layers layers) {
    std::vector<LayoutRule> rules = layout_rules(layout_.family_, layout_.spec_, scope, layers,
                                                 layout_.style_, layout_.stored_names_);
    if (scope != Scope::kLayer) drop_what_is_not_stored(rules, "");
    if (layout_.style_ == RuleStyle::kTransformers) adapt_to_transformers(rules);
    check_extents(rules);
    return rules;
  };
  layout_.first_section_.rules = rules_of(Scope::kFirstStage, Layers::kAll);
  layout_.last_section_.rules = rules_of(Scope::kLastStage, Layers::kAll);
  count_sources(layout_.first_section_);
  count_sources(layout_.last_section_);
  // A config may have layers of one kind only; what the other kind needs is not asked for then.
  const bool joins = layout_.family_.draft.joins;
  const Layers kinds[] = {joins ? Layers::kFirst : Layers::kDense,
                          joins ? Layers::kLater : Layers::kSparse};
  for (std::int64_t layer = 0; layer < layout_.numbers_.count; ++layer) {
    const std::size_t kind = layout_.kind_of(layer);
    std::vector<LayoutRule>& rules = layer_rules_[kind];
    if (!rules.empty()) continue;
    rules = rules_of(Scope::kLayer, kinds[kind]);
    drop_what_is_not_stored(rules, layout_.layer_name(layer));
  }
}

void FamilyLayout::Matcher::count_sources(Section& section) {
  for (const LayoutRule& rule : section.rules) {
    if (layout_.tied(rule)) continue;
    for (const LayoutPart& part : rule.parts) section.sources += layout_.sources_of(part);
  }
}

void FamilyLayout::Matcher::check_extents(const std::vector<LayoutRule>& rules) {
  const auto check = [&](const std::string& text, std::int64_t extent) {
    if (extent > 0) return;
    const bool field = text.find(' ') == std::string::npos;
    std::string problem = field ? fmt::format("config.json states no \"{}\"", text)
                                : fmt::format("config.json makes {} {}", text, extent);
    if (std::ranges::find(problems_, problem) == problems_.end()) {
      problems_.push_back(std::move(problem));
    }
  };
  for (const LayoutRule& rule : rules) {
    for (const LayoutPart& part : rule.parts) {
      check(part.row_text, part.rows);
      if (!part.one_axis()) check(part.column_text, part.columns);
    }
  }
}

// Which weights are quantised, the checkpoint says: they have a scale beside them.
const FamilyLayout::Section& FamilyLayout::Matcher::layer_section(std::size_t layer,
                                                                  const std::string& prefix) {
  const std::size_t kind = layout_.kind_of(static_cast<std::int64_t>(layer));
  const std::vector<LayoutRule>& rules = layer_rules_[kind];
  std::vector<bool> quantised(rules.size(), false);
  for (std::size_t i = 0; layout_.format_ && i < rules.size(); ++i) {
    std::string scale = scale_of(rules[i], *layout_.format_);
    if (const std::size_t star = scale.find('*'); star != std::string::npos) scale[star] = '0';
    quantised[i] = !scale.empty() && find(prefix + scale).has_value();
  }
  const auto [at, is_new] = known_.try_emplace({kind, quantised});
  if (is_new) {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      std::string reason = quantised[i] ? why_not_built(rules[i], *layout_.format_) : "";
      if (!reason.empty() && std::ranges::find(problems_, reason) == problems_.end()) {
        problems_.push_back(std::move(reason));
      }
    }
    Section& section = layout_.layer_sections_.emplace_back();
    section.rules = layout_.format_ ? with_scales(rules, quantised, *layout_.format_,
                                                  layout_.style_, layout_.family_.attention)
                                    : rules;
    count_sources(section);
    at->second = &section;
  }
  return *at->second;
}

FamilyLayout::Instance FamilyLayout::Matcher::match(const Section& section,
                                                    const std::string& prefix) {
  const Instance instance{&section, layout_.sources_.size(), 0};
  for (const LayoutRule& rule : section.rules) {
    if (layout_.tied(rule)) continue;
    for (const LayoutPart& part : rule.parts) {
      name_.assign(prefix).append(part.stored);
      if (!part.per_expert) {
        match_source(rule, part);
        continue;
      }
      const std::size_t star = prefix.size() + part.stored.find('*');
      const std::string behind = name_.substr(star + 1);
      for (std::int64_t expert = 0; expert < layout_.spec_.num_experts; ++expert) {
        name_.resize(star);
        fmt::format_to(std::back_inserter(name_), "{}", expert);
        name_.append(behind);
        match_source(rule, part);
      }
    }
  }
  return instance;
}

void FamilyLayout::Matcher::match_source(const LayoutRule& rule, const LayoutPart& part) {
  const std::optional<std::uint32_t> index = find(name_);
  if (!index) {
    const auto& names = layout_.family_.draft.names;
    const auto at = std::ranges::find_if(
        names, [&](const StoredName& stored) { return name_.starts_with(stored.name); });
    std::string name = at == names.end() ? name_ : stored_name(name_, *at);
    if (missing_.empty() || missing_.back() != name) missing_.push_back(std::move(name));
    return;
  }
  layout_.sources_.push_back(*index);
  consumed_[*index] = true;
  check_tensor(layout_.checkpoint_.tensors[*index], rule, part);
}

void FamilyLayout::Matcher::check_tensor(const SourceTensor& tensor, const LayoutRule& rule,
                                         const LayoutPart& part) {
  const Dims wanted = stored_shape(part);
  const bool fits = part.scalar ? element_count(tensor.shape) == 1 : tensor.shape == wanted;
  if (!fits) {
    shapes_.push_back(fmt::format("{} is {}, the config makes it {} ({})", tensor.name,
                                  to_string(tensor.shape), to_string(wanted),
                                  stored_shape_text(part)));
  } else if (part.exact) {
    if (tensor.dtype == *part.exact) return;
    shapes_.push_back(fmt::format("{} is stored as {}, it must be {}", tensor.name,
                                  dtype_name(tensor.dtype), dtype_name(*part.exact)));
  } else if (rule.content == Content::kQuantised) {
    if (tensor.dtype == DType::kF8E4M3) return;
    shapes_.push_back(
        fmt::format("{} is stored as {} with a scale beside it: scales are of F8_E4M3", tensor.name,
                    dtype_name(tensor.dtype)));
  } else if (rule.content == Content::kFloats && layout_.format_ &&
             tensor.dtype == DType::kF8E4M3) {
    shapes_.push_back(fmt::format("{} is stored as {} without its {} beside it", tensor.name,
                                  dtype_name(tensor.dtype), layout_.format_->scale));
  } else if (layout_.style_ != RuleStyle::kAsStored && !is_wide_float(tensor.dtype)) {
    shapes_.push_back(
        fmt::format("{} is stored as {}, the {} layout needs a float of 16 bits or "
                    "more",
                    tensor.name, dtype_name(tensor.dtype), layout_.request_.layout));
  }
}

void FamilyLayout::Matcher::leave_tied_alone() {
  for (const LayoutRule& rule : layout_.last_section_.rules) {
    if (!layout_.tied(rule)) continue;
    for (const LayoutPart& part : rule.parts) {
      if (const auto index = names_.find(part.stored)) {
        reasons_[*index] =
            fmt::format("tied: another name of {} (tie_word_embeddings)", rule.tied_to);
      }
    }
  }
}

void FamilyLayout::Matcher::leave_draft_layers_alone() {
  const std::string_view field = layout_.family_.draft_layers;
  const std::int64_t drafts = field.empty() ? 0 : layout_.spec_.config.number(field);
  if (drafts == 0) return;
  const std::int64_t first = layout_.spec_.num_hidden_layers;
  const std::string prefix = with_prefixes(layout_.family_.layer_prefix, layout_.stored_names_);
  for (std::size_t i = 0; i < reasons_.size(); ++i) {
    std::string_view name = layout_.checkpoint_.tensors[i].name;
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    std::int64_t layer = -1;
    const auto end = std::from_chars(name.data(), name.data() + name.size(), layer).ptr;
    if (end != name.data() + name.size() && *end == '.' && layer >= first &&
        layer < first + drafts) {
      reasons_[i] =
          fmt::format("of the layers behind num_hidden_layers {}, which are for drafts ({} {})",
                      first, field, drafts);
    }
  }
}

void FamilyLayout::Matcher::leave_target_alone() {
  if (!layout_.family_.draft.in_target) return;
  const Interval& numbers = layout_.numbers_;
  for (std::size_t i = 0; i < reasons_.size(); ++i) {
    if (consumed_[i]) continue;
    const std::string& name = layout_.checkpoint_.tensors[i].name;
    std::int64_t layer = 0;
    while (layer < numbers.count && !name.starts_with(layout_.layer_name(layer))) ++layer;
    if (layer == numbers.count) {
      reasons_[i] = "of the target";
    } else if (layer > 0 && name.ends_with(".embed_tokens.weight")) {
      reasons_[i] = fmt::format("the engine takes that of layer {}", numbers.begin);
    }
  }
}

// What transformers' model has and vLLM's has not.
void FamilyLayout::Matcher::leave_unused_alone() {
  if (layout_.style_ == RuleStyle::kTransformers) return;
  const std::string layer = with_prefixes(layout_.family_.layer_prefix, layout_.stored_names_);
  for (const Rule& rule : layout_.family_.rules) {
    // An untied head is no such thing: without it the logits would be others.
    if (!rule.target.empty() || !rule.tied_to.empty()) continue;
    const Presence presence = rule.presence;
    if (presence != nullptr && !presence(layout_.spec_)) continue;
    const std::int64_t layers = rule.scope == Scope::kLayer ? layout_.spec_.num_hidden_layers : 1;
    for (const Part& part : rule.parts) {
      for (std::int64_t i = 0; i < layers; ++i) {
        const std::string name = rule.scope == Scope::kLayer
                                     ? fmt::format("{}{}.{}", layer, i, part.stored)
                                     : with_prefixes(part.stored, layout_.stored_names_);
        if (const auto index = names_.find(name)) {
          reasons_[*index] = "vLLM's model has no such parameter";
        }
      }
    }
  }
}

std::string FamilyLayout::Matcher::stored_name(const std::string& name,
                                               const StoredName& names) const {
  std::string stored(names.stored);
  if (const std::size_t at = stored.find('#'); at != std::string::npos) {
    stored.replace(at, 1, fmt::format("{}", layout_.numbers_.begin));
  }
  return stored.append(name, names.name.size());
}

std::optional<std::uint32_t> FamilyLayout::Matcher::find(const std::string& name) const {
  bool has_own_name = false;
  for (const StoredName& names : layout_.family_.draft.names) {
    if (!name.starts_with(names.name)) continue;
    has_own_name = true;
    if (const auto index = names_.find(stored_name(name, names))) return index;
  }
  return has_own_name ? std::nullopt : names_.find(name);
}

void FamilyLayout::Matcher::drop_what_is_not_stored(std::vector<LayoutRule>& rules,
                                                    const std::string& prefix) const {
  std::erase_if(rules, [&](const LayoutRule& rule) {
    return rule.if_stored && std::ranges::none_of(rule.parts, [&](const LayoutPart& part) {
             return find(prefix + part.stored).has_value();
           });
  });
}

// Other parts of a multimodal model are served as they are stored, where nothing is cut.
void FamilyLayout::Matcher::serve_others() {
  std::vector<std::string> refused;
  std::vector<std::string> remedies;
  for (std::uint32_t i = 0; i < reasons_.size(); ++i) {
    const SourceTensor& tensor = layout_.checkpoint_.tensors[i];
    const auto& others = layout_.family_.multimodal.others;
    const auto other = std::ranges::find_if(
        others, [&](const OtherPart& part) { return tensor.name.starts_with(part.stored); });
    const bool ignored = std::ranges::any_of(
        layout_.request_.ignore,
        [&](const std::string& pattern) { return matches_glob(pattern, tensor.name); });
    if (other == others.end() || ignored || consumed_[i] || !reasons_[i].empty()) continue;
    if (layout_.sizes_.tp > 1 || layout_.sizes_.pp > 1) {
      refused.push_back(tensor.name);
      reasons_[i] = "refused";  // said once, below
      std::string remedy = fmt::format("--ignore-tensor '{}*'", other->stored);
      if (std::ranges::find(remedies, remedy) == remedies.end()) {
        remedies.push_back(std::move(remedy));
      }
      continue;
    }
    std::string target = tensor.name;
    if (layout_.style_ == RuleStyle::kTransformers) {
      target = std::string(other->transformers).append(target.substr(other->stored.size()));
    }
    layout_.last_section_.rules.push_back(whole_rule(tensor, std::move(target)));
    layout_.sources_.push_back(i);
    consumed_[i] = true;
    if (std::ranges::find(layout_.others_, other->stored) == layout_.others_.end()) {
      layout_.others_.push_back(other->stored);
    }
  }
  if (refused.empty()) return;
  problems_.push_back(fmt::format(
      "{} of the model's other parts, which are served whole, with --tensor-parallel-size and "
      "--pipeline-parallel-size at 1: {}; the language model alone can be cut: leave them alone "
      "with {}",
      count_tensors(refused.size()), quote_list(refused, kListed), fmt::join(remedies, " ")));
}

void FamilyLayout::Matcher::sort_out() {
  Leftovers leftovers = sort_leftovers(layout_.checkpoint_, consumed_, std::move(reasons_),
                                       layout_.family_.ignored, layout_.request_.ignore);
  layout_.left_alone_ = std::move(leftovers.left_alone);
  explain_missing();
  if (shapes_.size() > kListed) {
    const std::size_t more = shapes_.size() - kListed;
    shapes_.resize(kListed);
    shapes_.push_back(fmt::format("and {} more that contradict the config", count_tensors(more)));
  }
  problems_.insert(problems_.end(), shapes_.begin(), shapes_.end());
  if (!leftovers.unconsumed.empty()) {
    problems_.push_back(fmt::format(
        "no rule of {} uses {}: {}; if they do not belong to the model, leave them alone with "
        "--ignore-tensor NAME",
        layout_.spec_.architecture, count_tensors(leftovers.unconsumed.size()),
        quote_list(leftovers.unconsumed, kListed)));
  }
  if (!leftovers.needed.empty()) {
    problems_.push_back(fmt::format("--ignore-tensor matches what the model needs: {}",
                                    quote_list(leftovers.needed, kListed)));
  }
  if (!leftovers.idle.empty()) {
    problems_.push_back(
        fmt::format("--ignore-tensor {} matches no tensor", quote_list(leftovers.idle, kListed)));
  }
}

void FamilyLayout::Matcher::explain_missing() {
  if (missing_.empty()) return;
  problems_.push_back(fmt::format(
      "{} missing: {}; complete the checkpoint, or correct the config with --hf-overrides",
      count_tensors(missing_.size()), quote_list(missing_, kListed)));
  for (const LayoutRule& rule : layout_.last_section_.rules) {
    if (rule.tied_to.empty()) continue;
    if (std::ranges::find(missing_, rule.parts.front().stored) != missing_.end()) {
      problems_.push_back(
          fmt::format("{} is not stored and the config does not tie it to {}: if "
                      "the model ties them, --hf-overrides "
                      "'{{\"tie_word_embeddings\": true}}' says so",
                      rule.parts.front().stored, rule.tied_to));
    }
  }
}

void FamilyLayout::Matcher::throw_if_any() const {
  if (problems_.empty()) return;
  throw Error(Errc::kModel, fmt::format("{} ({}) cannot be served in the {} layout:\n  {}",
                                        layout_.checkpoint_.name, layout_.spec_.architecture,
                                        layout_.request_.layout, fmt::join(problems_, "\n  ")));
}

}  // namespace preload
