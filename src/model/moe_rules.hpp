// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "model/decoder_rules.hpp"

// Rules that families with experts share. vLLM 0.32 holds a layer's experts in two tensors
// (model_executor/layers/fused_moe/routed_experts.py): gate above up, and down.
namespace preload::moe {

inline constexpr std::string_view kGateUpTarget = "mlp.experts.routed_experts.w13_weight";
inline constexpr std::string_view kDownTarget = "mlp.experts.routed_experts.w2_weight";
// transformers 5 conversion_mapping.py, "qwen2_moe" and "mixtral".
inline constexpr std::string_view kGateUpInTransformers = "mlp.experts.gate_up_proj";
inline constexpr std::string_view kDownInTransformers = "mlp.experts.down_proj";

inline constexpr Part kRouterPart[] = {
    {"mlp.gate.weight", Split::kReplicated, extent::kExperts, extent::kHidden}};
inline constexpr Part kExpertGateUpParts[] = {
    {"mlp.experts.*.gate_proj.weight", Split::kRows, extent::kExpertIntermediate, extent::kHidden},
    {"mlp.experts.*.up_proj.weight", Split::kRows, extent::kExpertIntermediate, extent::kHidden}};
inline constexpr Part kExpertDownPart[] = {{"mlp.experts.*.down_proj.weight", Split::kColumns,
                                            extent::kHidden, extent::kExpertIntermediate}};

constexpr Rule sparse(std::string_view target, std::span<const Part> parts,
                      Presence presence = nullptr, Share share = Share::kModel) {
  return {.target = target,
          .parts = parts,
          .presence = presence,
          .layers = Layers::kSparse,
          .share = share};
}
// transformers holds an expert's tensor beside those of the others.
constexpr Rule experts(std::string_view target, std::span<const Part> parts,
                       std::string_view in_transformers = {}) {
  Rule rule = sparse(target, parts, nullptr, Share::kExperts);
  rule.transformers.name = in_transformers;
  return rule;
}
// Another name of what the same layer holds.
constexpr Rule alias(std::string_view target, std::string_view of, Presence presence = nullptr,
                     Layers layers = Layers::kSparse) {
  return {.target = target, .presence = presence, .layers = layers, .alias_of = of};
}
// A rule of layers without experts only.
constexpr Rule dense(Rule rule) {
  rule.layers = Layers::kDense;
  return rule;
}

inline constexpr Rule kRouter = sparse("mlp.gate.weight", kRouterPart);
inline constexpr Rule kRouterOfExperts = alias("mlp.experts.gate.weight", "mlp.gate.weight");
inline constexpr Rule kExpertGateUp =
    experts(kGateUpTarget, kExpertGateUpParts, kGateUpInTransformers);
inline constexpr Rule kExpertDown = experts(kDownTarget, kExpertDownPart, kDownInTransformers);

// Qwen's shared expert, beside the routed ones: an MLP behind a gate of its own.
inline constexpr Extent kSharedIntermediate{
    "shared_expert_intermediate_size",
    [](const ModelSpec& s) { return s.config.number("shared_expert_intermediate_size"); }};
inline constexpr Presence kSharedExpert = [](const ModelSpec& s) {
  return s.config.number("shared_expert_intermediate_size") > 0;
};
inline constexpr Extent kSingle{"1", [](const ModelSpec&) { return std::int64_t{1}; }};

inline constexpr Part kSharedExpertGatePart[] = {
    {"mlp.shared_expert_gate.weight", Split::kReplicated, kSingle, extent::kHidden}};
inline constexpr Part kSharedExpertGateUpParts[] = {
    {"mlp.shared_expert.gate_proj.weight", Split::kRows, kSharedIntermediate, extent::kHidden},
    {"mlp.shared_expert.up_proj.weight", Split::kRows, kSharedIntermediate, extent::kHidden}};
inline constexpr Part kSharedExpertDownPart[] = {
    {"mlp.shared_expert.down_proj.weight", Split::kColumns, extent::kHidden, kSharedIntermediate}};

inline constexpr Rule kSharedExpertGate =
    sparse("mlp.shared_expert_gate.weight", kSharedExpertGatePart, kSharedExpert);
inline constexpr Rule kSharedExpertGateUp =
    sparse("mlp.shared_expert.gate_up_proj.weight", kSharedExpertGateUpParts, kSharedExpert);
inline constexpr Rule kSharedExpertDown =
    sparse("mlp.shared_expert.down_proj.weight", kSharedExpertDownPart, kSharedExpert);
// vLLM's modules hold each other, so the same tensors have further names.
inline constexpr Rule kSharedExpertGateOfExpert =
    alias("mlp.shared_expert.expert_gate.weight", "mlp.shared_expert_gate.weight", kSharedExpert);
inline constexpr Rule kSharedGateUpOfExperts =
    alias("mlp.experts._shared_experts._layer.gate_up_proj.weight",
          "mlp.shared_expert.gate_up_proj.weight", kSharedExpert);
inline constexpr Rule kSharedDownOfExperts =
    alias("mlp.experts._shared_experts._layer.down_proj.weight",
          "mlp.shared_expert.down_proj.weight", kSharedExpert);
inline constexpr Rule kSharedGateOfExperts =
    alias("mlp.experts._shared_experts._layer.expert_gate.weight", "mlp.shared_expert_gate.weight",
          kSharedExpert);

// Qwen's order of kinds: every decoder_sparse_step-th layer has experts, except mlp_only_layers.
inline bool is_every_nth_layer(const ModelSpec& spec, std::int64_t layer) {
  const std::int64_t step =
      spec.config.has("decoder_sparse_step") ? spec.config.number("decoder_sparse_step") : 1;
  const std::vector<std::int64_t> dense = spec.config.numbers("mlp_only_layers");
  return step > 0 && (layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end();
}

}  // namespace preload::moe
