// SPDX-License-Identifier: Apache-2.0
#include "cli/draft_options.hpp"

#include <fmt/format.h>

#include "base/log.hpp"
#include "model/family.hpp"

namespace preload::cli {
namespace {

constexpr std::string_view kTransformers = "transformers";  // the layout

}  // namespace

std::optional<ModelOptions> draft_options(const ModelOptions& target) {
  if (!target.speculative || !target.speculative->draft) return std::nullopt;
  if (target.layout.layout == kTransformers) return std::nullopt;
  const SpeculativeConfig& config = *target.speculative;
  ModelOptions draft = target;
  draft.speculative.reset();
  draft.hf_overrides.clear();  // vLLM lays them over the target's config alone
  draft.layout.ignore.clear();
  draft.stage_layers.clear();
  draft.layout.draft = DraftRequest{*config.draft};
  if (!config.model.empty()) {
    draft.model = config.model;
    draft.open.revision = config.revision;
  }
  return draft;
}

ParallelSizes draft_sizes(const ModelOptions& draft, const ParallelSizes& target) {
  ParallelSizes sizes = target;
  sizes.pp = 1;
  sizes.stage_layers.clear();
  sizes.expert_parallel = sizes.expert_parallel && draft.layout.draft->method == DraftMethod::kMtp;
  return sizes;
}

std::optional<RankCoords> draft_coords(const RankCoords& target, const ParallelSizes& sizes) {
  if (target.pp != sizes.pp - 1) return std::nullopt;
  RankCoords coords = target;
  coords.pp = 0;
  return coords;
}

std::optional<std::string> why_not_held(const ModelOptions& target) {
  if (!target.speculative) return std::nullopt;
  if (target.layout.layout == kTransformers) {
    return "transformers has no draft models, and its layout none of theirs: the target is served "
           "all the same";
  }
  if (target.speculative->draft) return std::nullopt;
  return fmt::format(
      "speculative method {} has no weights that are held here: the engine loads what it needs "
      "itself; the target is served all the same",
      target.speculative->method);
}

std::optional<std::string> why_not_held(const ModelOptions& draft, const ModelSpec& spec) {
  if (find_family(spec.architecture) != nullptr &&
      !draft_architecture(draft.layout.draft->method, spec).empty()) {
    return std::nullopt;
  }
  return fmt::format(
      "there are no rules for the {} draft of {}: the engine loads it itself; the target is served "
      "all the same",
      draft_method_name(draft.layout.draft->method), spec.architecture);
}

std::optional<DraftModel> open_draft(const ModelOptions& target, const Checkpoint& checkpoint,
                                     const ModelSpec& spec) {
  if (const auto reason = why_not_held(target)) log::warn(*reason);
  std::optional<ModelOptions> options = draft_options(target);
  if (!options) return std::nullopt;
  DraftModel draft;
  draft.options = std::move(*options);
  if (draft.options.model == target.model) {
    draft.checkpoint = checkpoint;
  } else {
    draft.checkpoint = open_checkpoint(draft.options.model, draft.options.open);
    for (const std::string& warning : draft.checkpoint.warnings) log::warn(warning);
  }
  LayoutRequest& request = draft.options.layout;
  follow_target(request, checkpoint, spec, target.layout);
  draft.spec = layout_spec(draft.checkpoint, request, draft.options.hf_overrides);
  if (const auto reason = why_not_held(draft.options, draft.spec)) {
    log::warn(*reason);
    return std::nullopt;
  }
  check_draft(request.draft->method, draft.spec, spec, draft.options.model);
  return draft;
}

}  // namespace preload::cli
