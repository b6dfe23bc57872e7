// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "checkpoint/problems.hpp"
#include "model/family_matcher.hpp"
#include "model/left_alone.hpp"

// What a matcher says of tensors that no rule takes and of those that are not there.
namespace preload {

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

// Other parts of a multimodal model are served as they are stored, where nothing is cut.
void FamilyLayout::Matcher::serve_others() {
  std::vector<std::string> refused;
  std::vector<std::string> remedies;
  for (std::uint32_t i = 0; i < reasons_.size(); ++i) {
    const SourceTensor& tensor = layout_.checkpoint_.tensors[i];
    const auto& others = layout_.family_.multimodal.others;
    const auto other = std::ranges::find_if(
        others, [&](const OtherPart& part) { return tensor.name.starts_with(part.stored); });
    const auto matches = [&](std::string_view pattern) {
      return matches_glob(pattern, tensor.name);
    };
    const bool ignored = std::ranges::any_of(layout_.request_.ignore, matches) ||
                         std::ranges::any_of(layout_.family_.ignored, matches);
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
      counted(refused.size(), "tensor"), quote_list(refused, kListed), fmt::join(remedies, " ")));
}

void FamilyLayout::Matcher::sort_out() {
  Leftovers leftovers = sort_leftovers(layout_.checkpoint_, consumed_, std::move(reasons_),
                                       layout_.family_.ignored, layout_.request_.ignore);
  layout_.left_alone_ = std::move(leftovers.left_alone);
  explain_missing();
  if (shapes_.size() > kListed) {
    const std::size_t more = shapes_.size() - kListed;
    shapes_.resize(kListed);
    shapes_.push_back(
        fmt::format("and {} more that contradict the config", counted(more, "tensor")));
  }
  problems_.insert(problems_.end(), shapes_.begin(), shapes_.end());
  if (!leftovers.unconsumed.empty()) {
    problems_.push_back(fmt::format(
        "no rule of {} uses {}: {}; if they do not belong to the model, leave them alone with "
        "--ignore-tensor NAME",
        layout_.spec_.architecture, counted(leftovers.unconsumed.size(), "tensor"),
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
      counted(missing_.size(), "tensor"), quote_list(missing_, kListed)));
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
