// SPDX-License-Identifier: Apache-2.0
#include "model/family_matcher.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "checkpoint/problems.hpp"
#include "model/left_alone.hpp"
#include "model/part_shard.hpp"

namespace preload {
namespace {

constexpr std::size_t kListed = 64;  // names in one line of a refusal

bool present(Presence presence, const ModelSpec& spec) {
  switch (presence) {
    case Presence::kAlways:
      return true;
    case Presence::kQkvBias:
      return spec.qkv_bias;
    case Presence::kAttentionBias:
      return spec.attention_bias;
    case Presence::kMlpBias:
      return spec.mlp_bias;
  }
  return false;
}

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

void FamilyLayout::Matcher::run(const LayoutRequest& request) {
  check_numbers();
  throw_if_any();
  select_rules();
  match(layout_.first_, "");
  layout_.layer_.sources.reserve(
      std::min(layout_.layer_.parts * static_cast<std::size_t>(layout_.spec_.num_hidden_layers),
               layout_.checkpoint_.tensors.size()));
  for (std::int64_t layer = 0; layer < layout_.spec_.num_hidden_layers; ++layer) {
    // A config that promises far more layers than are stored is one fault, not thousands.
    if (missing_.size() > layout_.checkpoint_.tensors.size() + kListed) break;
    match(layout_.layer_, fmt::format("{}{}.", layout_.family_.layer_prefix, layer));
  }
  match(layout_.last_, "");
  leave_tied_alone();
  sort_out(request);
  throw_if_any();
}

void FamilyLayout::Matcher::check_numbers() {
  const ModelSpec& spec = layout_.spec_;
  const std::pair<std::string_view, std::int64_t> needed[] = {
      {"hidden_size", spec.hidden_size},
      {"intermediate_size", spec.intermediate_size},
      {"num_hidden_layers", spec.num_hidden_layers},
      {"num_attention_heads", spec.num_attention_heads},
      {"vocab_size", spec.vocab_size},
  };
  for (const auto& [name, value] : needed) {
    if (value < 1) problems_.push_back(fmt::format("config.json states no \"{}\"", name));
  }
  if (!problems_.empty()) return;
  if (spec.head_dim < 1) {
    problems_.push_back(
        fmt::format("hidden_size {} is smaller than num_attention_heads {}, and "
                    "config.json states no \"head_dim\"",
                    spec.hidden_size, spec.num_attention_heads));
  }
  if (layout_.sizes_.pp > spec.num_hidden_layers) {
    problems_.push_back(
        fmt::format("num_hidden_layers {} cannot be split over "
                    "--pipeline-parallel-size {} stages",
                    spec.num_hidden_layers, layout_.sizes_.pp));
  }
}

void FamilyLayout::Matcher::select_rules() {
  std::vector<const Rule*> sharded;
  for (const Rule& rule : layout_.family_.rules) {
    if (!present(rule.presence, layout_.spec_)) continue;
    Section& section = rule.scope == Scope::kFirstStage ? layout_.first_
                       : rule.scope == Scope::kLayer    ? layout_.layer_
                                                        : layout_.last_;
    section.rules.push_back(&rule);
    if (layout_.tied(rule)) continue;
    section.parts += rule.parts.size();
    sharded.push_back(&rule);
  }
  problems_ = indivisible(sharded, layout_.spec_, layout_.sizes_.tp);
}

void FamilyLayout::Matcher::match(Section& section, const std::string& prefix) {
  for (const Rule* rule : section.rules) {
    if (layout_.tied(*rule)) continue;
    for (const Part& part : rule->parts) match_part(section, part, prefix);
  }
}

void FamilyLayout::Matcher::match_part(Section& section, const Part& part,
                                       const std::string& prefix) {
  name_.assign(prefix).append(part.stored);
  const std::optional<std::uint32_t> index = names_.find(name_);
  if (!index) {
    missing_.push_back(name_);
    return;
  }
  section.sources.push_back(*index);
  consumed_[*index] = true;
  check_tensor(layout_.checkpoint_.tensors[*index], part);
}

void FamilyLayout::Matcher::check_tensor(const SourceTensor& tensor, const Part& part) {
  const Dims wanted = stored_shape(part, layout_.spec_);
  if (tensor.shape != wanted) {
    std::string meaning(extent_text(part.rows));
    if (part.columns != Extent::kOne) meaning += fmt::format(", {}", extent_text(part.columns));
    shapes_.push_back(fmt::format("{} is {}, the config makes it {} ({})", tensor.name,
                                  to_string(tensor.shape), to_string(wanted), meaning));
  } else if (layout_.fused_ && !is_wide_float(tensor.dtype)) {
    shapes_.push_back(
        fmt::format("{} is stored as {}, the vllm layout needs a float of 16 bits or "
                    "more",
                    tensor.name, dtype_name(tensor.dtype)));
  }
}

void FamilyLayout::Matcher::leave_tied_alone() {
  for (const Rule* rule : layout_.last_.rules) {
    if (!layout_.tied(*rule)) continue;
    for (const Part& part : rule->parts) {
      if (const auto index = names_.find(part.stored)) {
        reasons_[*index] =
            fmt::format("tied: another name of {} (tie_word_embeddings)", rule->tied_to);
      }
    }
  }
}

void FamilyLayout::Matcher::sort_out(const LayoutRequest& request) {
  Leftovers leftovers = sort_leftovers(layout_.checkpoint_, consumed_, std::move(reasons_),
                                       layout_.family_.ignored, request.ignore);
  layout_.left_alone_ = std::move(leftovers.left_alone);
  if (!missing_.empty()) {
    problems_.push_back(fmt::format(
        "{} missing: {}; complete the checkpoint, or correct the config with --hf-overrides",
        count_tensors(missing_.size()), quote_list(missing_, kListed)));
    for (const Rule* rule : layout_.last_.rules) {
      if (rule->tied_to.empty()) continue;
      if (std::ranges::find(missing_, rule->parts.front().stored) != missing_.end()) {
        problems_.push_back(
            fmt::format("{} is not stored and the config does not tie it to {}: if "
                        "the model ties them, --hf-overrides "
                        "'{{\"tie_word_embeddings\": true}}' says so",
                        rule->parts.front().stored, rule->tied_to));
      }
    }
  }
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

void FamilyLayout::Matcher::throw_if_any() const {
  if (problems_.empty()) return;
  throw Error(Errc::kModel,
              fmt::format("{} ({}) cannot be served in the {} layout:\n  {}",
                          layout_.checkpoint_.name, layout_.spec_.architecture,
                          layout_.fused_ ? "vllm" : "hf", fmt::join(problems_, "\n  ")));
}

}  // namespace preload
