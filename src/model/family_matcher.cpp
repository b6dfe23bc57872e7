// SPDX-License-Identifier: Apache-2.0
#include "model/family_matcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "model/kv_scales.hpp"
#include "model/mxfp4.hpp"

namespace preload {

FamilyLayout::Matcher::Matcher(FamilyLayout& layout)
    : layout_(layout),
      names_(layout.checkpoint_),
      consumed_(layout.checkpoint_.tensors.size(), false),
      reasons_(layout.checkpoint_.tensors.size()),
      float_modules_(layout.spec_) {}

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
    if (missing_.size() > layout_.checkpoint_.tensors.size() + kListed) {
      problems_.push_back(fmt::format(
          "the config states {} layers, and those from {} on are missing", layers, layer));
      break;
    }
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
  check_engine_experts();
  check_mxfp4();
  explain_formats();
  sort_out();
  throw_if_any();
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
  }
}

// Where both are stored transformers ties them only if they are equal: two tensors are right either
// way. In the layout `hf` each is what it is in the file.
void FamilyLayout::Matcher::keep_what_is_stored_twice(std::vector<LayoutRule>& rules) const {
  for (LayoutRule& rule : rules) {
    if (!rule.tied_to.empty() && names_.find(rule.parts.front().stored)) rule.tied_to.clear();
  }
}

void FamilyLayout::Matcher::select_rules() {
  const auto rules_of = [&](Scope scope, Layers layers) {
    std::vector<LayoutRule> rules = layout_rules(layout_.family_, layout_.spec_, scope, layers,
                                                 layout_.style_, layout_.stored_names_);
    if (scope != Scope::kLayer) drop_what_is_not_stored(rules, "");
    if (layout_.style_ == RuleStyle::kTransformers) adapt_to_transformers(rules);
    if (layout_.style_ != RuleStyle::kEngine) keep_what_is_stored_twice(rules);
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

// Which weights are quantised, the checkpoint says: they have a scale beside them.
const FamilyLayout::Section& FamilyLayout::Matcher::layer_section(std::size_t layer,
                                                                  const std::string& prefix) {
  const std::size_t kind = layout_.kind_of(static_cast<std::int64_t>(layer));
  const std::vector<LayoutRule>& rules = layer_rules_[kind];
  std::vector<bool> quantised(rules.size(), false);
  const bool by_scale = layout_.format_ && !layout_.format_->mxfp4;
  for (std::size_t i = 0; by_scale && i < rules.size(); ++i) {
    std::string scale = scale_of(rules[i], *layout_.format_);
    if (const std::size_t star = scale.find('*'); star != std::string::npos) scale[star] = '0';
    quantised[i] = !scale.empty() && find(prefix + scale).has_value();
  }
  if (by_scale) check_formats(rules, quantised, prefix);
  std::optional<WeightFormat> format = by_scale ? layout_.format_ : std::nullopt;
  std::vector<LayoutRule> kv_rules;
  const std::vector<std::string> kv_names = take_kv_scales(prefix, format, kv_rules);
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (quantised[i]) leave_input_scales_alone(rules[i], prefix);
  }
  const auto [at, is_new] = known_.try_emplace({kind, quantised, kv_names});
  if (is_new) {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      std::string reason = quantised[i] ? why_not_built(rules[i], *layout_.format_) : "";
      if (!reason.empty() && std::ranges::find(problems_, reason) == problems_.end()) {
        problems_.push_back(std::move(reason));
      }
    }
    Section& section = layout_.layer_sections_.emplace_back();
    if (by_scale) {
      section.rules =
          with_scales(rules, quantised, *format, layout_.style_, layout_.family_.attention);
    } else if (layout_.format_) {
      section.rules = with_mxfp4_experts(rules, *layout_.format_->mxfp4, layout_.style_);
    } else {
      section.rules = rules;
    }
    std::ranges::move(kv_rules, std::back_inserter(section.rules));
    count_sources(section);
    at->second = &section;
  }
  return *at->second;
}

// Scales of a layer's KV cache that the checkpoint has, instead of the constants in `format`; in
// the hf layout they are rules of their own. Returns their names.
std::vector<std::string> FamilyLayout::Matcher::take_kv_scales(const std::string& prefix,
                                                               std::optional<WeightFormat>& format,
                                                               std::vector<LayoutRule>& rules) {
  const std::string_view attention = layout_.family_.attention;
  std::vector<std::string> found;
  if (attention.empty() || layout_.style_ == RuleStyle::kTransformers) return found;
  if (format && layout_.style_ == RuleStyle::kEngine) {
    for (LayoutRule& rule : format->attention) {
      for (const std::string& name : stored_kv_names(attention, rule.target)) {
        if (!find(prefix + name)) continue;
        found.push_back(name);
        rule = kv_rule(std::move(rule), name, layout_.style_);
        break;
      }
    }
    return found;
  }
  for (const std::string& name : stored_kv_names(attention)) {
    const std::optional<std::uint32_t> index = find(prefix + name);
    if (!index) continue;
    if (layout_.style_ == RuleStyle::kEngine) {
      reasons_[*index] = "vLLM's attention has no such parameter without quantised weights";
      continue;
    }
    found.push_back(name);
    rules.push_back(kv_rule({}, name, layout_.style_));
  }
  return found;
}

void FamilyLayout::Matcher::leave_input_scales_alone(const LayoutRule& rule,
                                                     const std::string& prefix) {
  for (const std::string& name : unused_input_scales(rule, *layout_.format_, layout_.style_)) {
    const std::size_t star = name.find('*');
    if (star == std::string::npos) continue;
    for (std::int64_t expert = 0; expert < layout_.spec_.num_experts; ++expert) {
      const auto index = find(
          fmt::format("{}{}{}{}", prefix, name.substr(0, star), expert, name.substr(star + 1)));
      if (index) reasons_[*index] = "vLLM keeps one input scale of gate and up, that of up";
    }
  }
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

}  // namespace preload
