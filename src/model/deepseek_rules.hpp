// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/moe_rules.hpp"

// Rules of DeepSeek-V2 and what grew out of it, from vLLM 0.32
// model_executor/models/deepseek_v2.py: latent attention (DeepseekV2MLAAttention, which vLLM uses
// unless VLLM_MLA_DISABLE is set), dense first layers, experts with shared ones beside them.
namespace preload::deepseek {

// Config fields under the names of their Python counterparts.
inline std::int64_t qk_head_dim(const ModelSpec& s) {
  return s.config.number("qk_nope_head_dim") + s.config.number("qk_rope_head_dim");
}
inline constexpr Extent kQueryRank{
    "q_lora_rank", [](const ModelSpec& s) { return s.config.number("q_lora_rank"); }};
inline constexpr Extent kKeyValueRank{
    "kv_lora_rank", [](const ModelSpec& s) { return s.config.number("kv_lora_rank"); }};
inline constexpr Extent kKeyValueRankAndRope{
    "kv_lora_rank + qk_rope_head_dim", [](const ModelSpec& s) {
      return s.config.number("kv_lora_rank") + s.config.number("qk_rope_head_dim");
    }};
inline constexpr Extent kQueryHeads{
    "num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)",
    [](const ModelSpec& s) { return s.num_attention_heads * qk_head_dim(s); }};
inline constexpr Extent kKeyValueHeads{
    "num_attention_heads * (qk_nope_head_dim + v_head_dim)", [](const ModelSpec& s) {
      return s.num_attention_heads *
             (s.config.number("qk_nope_head_dim") + s.config.number("v_head_dim"));
    }};
inline constexpr Extent kValueHeads{"num_attention_heads * v_head_dim", [](const ModelSpec& s) {
                                      return s.num_attention_heads * s.config.number("v_head_dim");
                                    }};
inline constexpr Extent kSharedIntermediate{
    "moe_intermediate_size * n_shared_experts", [](const ModelSpec& s) {
      return s.config.number("moe_intermediate_size") * s.config.number("n_shared_experts");
    }};

inline constexpr Presence kQueryLatent = [](const ModelSpec& s) {
  return s.config.has("q_lora_rank");
};
inline constexpr Presence kQueryDirect = [](const ModelSpec& s) {
  return !s.config.has("q_lora_rank");
};
inline constexpr Presence kScoreCorrection = [](const ModelSpec& s) {
  return s.config.text("topk_method") == "noaux_tc";
};
inline constexpr Presence kShared = [](const ModelSpec& s) {
  return s.config.has("n_shared_experts");
};

inline constexpr Part kLatentParts[] = {
    {"self_attn.q_a_proj.weight", Split::kReplicated, kQueryRank, extent::kHidden},
    {"self_attn.kv_a_proj_with_mqa.weight", Split::kReplicated, kKeyValueRankAndRope,
     extent::kHidden}};
inline constexpr Part kKeyValueLatentPart[] = {{"self_attn.kv_a_proj_with_mqa.weight",
                                                Split::kReplicated, kKeyValueRankAndRope,
                                                extent::kHidden}};
inline constexpr Part kQueryPart[] = {
    {"self_attn.q_proj.weight", Split::kQueryHeads, kQueryHeads, extent::kHidden}};
inline constexpr Part kQueryNormPart[] = {
    {"self_attn.q_a_layernorm.weight", Split::kReplicated, kQueryRank}};
inline constexpr Part kQueryUpPart[] = {
    {"self_attn.q_b_proj.weight", Split::kQueryHeads, kQueryHeads, kQueryRank}};
inline constexpr Part kKeyValueNormPart[] = {
    {"self_attn.kv_a_layernorm.weight", Split::kReplicated, kKeyValueRank}};
inline constexpr Part kKeyValueUpPart[] = {
    {"self_attn.kv_b_proj.weight", Split::kQueryHeads, kKeyValueHeads, kKeyValueRank}};
inline constexpr Part kOutputPart[] = {
    {"self_attn.o_proj.weight", Split::kColumns, extent::kHidden, kValueHeads}};
inline constexpr Part kQueryDownBiasPart[] = {
    {"self_attn.q_a_proj.bias", Split::kReplicated, kQueryRank}};
inline constexpr Part kKeyValueDownBiasPart[] = {
    {"self_attn.kv_a_proj_with_mqa.bias", Split::kReplicated, kKeyValueRankAndRope}};
inline constexpr Part kScoreCorrectionPart[] = {
    {"mlp.gate.e_score_correction_bias", Split::kReplicated, extent::kExperts}};
inline constexpr Part kSharedGateUpParts[] = {
    {"mlp.shared_experts.gate_proj.weight", Split::kRows, kSharedIntermediate, extent::kHidden},
    {"mlp.shared_experts.up_proj.weight", Split::kRows, kSharedIntermediate, extent::kHidden}};
inline constexpr Part kSharedDownPart[] = {
    {"mlp.shared_experts.down_proj.weight", Split::kColumns, extent::kHidden, kSharedIntermediate}};

constexpr Rule attention(std::string_view target, std::span<const Part> parts,
                         Presence presence = nullptr) {
  return {.target = target, .parts = parts, .presence = presence};
}
// The attention is held a second time by its wrapper, kv_b_proj a third time.
constexpr Rule wrapped(std::string_view target, std::string_view of, Presence presence = nullptr) {
  return moe::alias(target, of, presence, Layers::kAll);
}
constexpr Rule score_correction() {
  Rule rule =
      moe::sparse("mlp.gate.e_score_correction_bias", kScoreCorrectionPart, kScoreCorrection);
  rule.dtype = DType::kF32;
  // transformers has it in its class for V3 alone, whatever topk_method says.
  rule.transformers = {
      .presence = [](const ModelSpec& s) { return s.architecture == "DeepseekV3ForCausalLM"; },
      .kind = TensorKind::kBuffer};
  return rule;
}

// vLLM's projections have no biases.
constexpr Rule bias_in_transformers(std::span<const Part> parts, Presence presence) {
  return {.parts = parts, .presence = presence};
}

inline constexpr Rule kRules[] = {
    decoder::kEmbedding,
    attention("self_attn.fused_qkv_a_proj.weight", kLatentParts, kQueryLatent),
    attention("self_attn.kv_a_proj_with_mqa.weight", kKeyValueLatentPart, kQueryDirect),
    attention("self_attn.q_a_layernorm.weight", kQueryNormPart, kQueryLatent),
    attention("self_attn.q_b_proj.weight", kQueryUpPart, kQueryLatent),
    attention("self_attn.q_proj.weight", kQueryPart, kQueryDirect),
    attention("self_attn.kv_a_layernorm.weight", kKeyValueNormPart),
    attention("self_attn.kv_b_proj.weight", kKeyValueUpPart),
    attention("self_attn.o_proj.weight", kOutputPart),
    wrapped("self_attn.mla_attn.fused_qkv_a_proj.weight", "self_attn.fused_qkv_a_proj.weight",
            kQueryLatent),
    wrapped("self_attn.mla_attn.kv_a_proj_with_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight",
            kQueryDirect),
    wrapped("self_attn.mla_attn.q_a_layernorm.weight", "self_attn.q_a_layernorm.weight",
            kQueryLatent),
    wrapped("self_attn.mla_attn.q_b_proj.weight", "self_attn.q_b_proj.weight", kQueryLatent),
    wrapped("self_attn.mla_attn.q_proj.weight", "self_attn.q_proj.weight", kQueryDirect),
    wrapped("self_attn.mla_attn.kv_a_layernorm.weight", "self_attn.kv_a_layernorm.weight"),
    wrapped("self_attn.mla_attn.kv_b_proj.weight", "self_attn.kv_b_proj.weight"),
    wrapped("self_attn.mla_attn.o_proj.weight", "self_attn.o_proj.weight"),
    wrapped("self_attn.mla_attn.mla_attn.kv_b_proj.weight", "self_attn.kv_b_proj.weight"),
    bias_in_transformers(
        kQueryDownBiasPart,
        [](const ModelSpec& s) { return kQueryLatent(s) && presence::kAttentionBias(s); }),
    bias_in_transformers(kKeyValueDownBiasPart, presence::kAttentionBias),
    bias_in_transformers(decoder::kOutputBiasPart, presence::kAttentionBias),
    moe::dense(decoder::kGateUpWeight),
    moe::dense(decoder::kDownWeight),
    moe::kRouter,
    score_correction(),
    moe::sparse("mlp.shared_experts.gate_up_proj.weight", kSharedGateUpParts, kShared,
                Share::kSharedExpert),
    moe::sparse("mlp.shared_experts.down_proj.weight", kSharedDownPart, kShared,
                Share::kSharedExpert),
    moe::kRouterOfExperts,
    moe::alias("mlp.experts.gate.e_score_correction_bias", "mlp.gate.e_score_correction_bias",
               kScoreCorrection),
    moe::alias("mlp.experts.routed_experts.e_score_correction_bias",
               "mlp.gate.e_score_correction_bias", kScoreCorrection),
    moe::kExpertGateUp,
    moe::kExpertDown,
    moe::alias("mlp.experts._shared_experts._layer.gate_up_proj.weight",
               "mlp.shared_experts.gate_up_proj.weight", kShared),
    moe::alias("mlp.experts._shared_experts._layer.down_proj.weight",
               "mlp.shared_experts.down_proj.weight", kShared),
    decoder::kInputNorm,
    decoder::kPostAttentionNorm,
    decoder::kNorm,
    // Not tied, whatever tie_word_embeddings says.
    {.scope = Scope::kLastStage, .target = "lm_head.weight", .parts = decoder::kHeadPart},
};

// Layers from first_k_dense_replace on have experts, every moe_layer_freq-th of them.
inline bool has_experts(const ModelSpec& spec, std::int64_t layer) {
  const std::int64_t step =
      spec.config.has("moe_layer_freq") ? spec.config.number("moe_layer_freq") : 1;
  return spec.num_experts > 0 && step > 0 && layer % step == 0 &&
         layer >= spec.config.number("first_k_dense_replace");
}

inline constexpr Experts kExperts{.sparse = has_experts, .groups = "n_group"};

}  // namespace preload::deepseek
