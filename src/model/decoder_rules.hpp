// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/extents.hpp"

// Rules that dense decoder families share. A family file lists those it has, in its engine's order.
namespace preload::decoder {

inline constexpr std::string_view kLayerPrefix = "model.layers.";

inline constexpr Part kEmbeddingPart[] = {
    {"model.embed_tokens.weight", Split::kVocabRows, extent::kVocab, extent::kHidden}};
inline constexpr Part kQkvWeightParts[] = {
    {"self_attn.q_proj.weight", Split::kQueryHeads, extent::kQuery, extent::kHidden},
    {"self_attn.k_proj.weight", Split::kKvHeads, extent::kKeyValue, extent::kHidden},
    {"self_attn.v_proj.weight", Split::kKvHeads, extent::kKeyValue, extent::kHidden}};
inline constexpr Part kQkvBiasParts[] = {
    {"self_attn.q_proj.bias", Split::kQueryHeads, extent::kQuery},
    {"self_attn.k_proj.bias", Split::kKvHeads, extent::kKeyValue},
    {"self_attn.v_proj.bias", Split::kKvHeads, extent::kKeyValue}};
inline constexpr Part kOutputWeightPart[] = {
    {"self_attn.o_proj.weight", Split::kColumns, extent::kHidden, extent::kQuery}};
// The bias of a layer that sums over ranks is whole on every rank; the engine adds it once.
inline constexpr Part kOutputBiasPart[] = {
    {"self_attn.o_proj.bias", Split::kReplicated, extent::kHidden}};
inline constexpr Part kQueryNormPart[] = {
    {"self_attn.q_norm.weight", Split::kReplicated, extent::kHeadDim}};
inline constexpr Part kKeyNormPart[] = {
    {"self_attn.k_norm.weight", Split::kReplicated, extent::kHeadDim}};
inline constexpr Part kGateUpWeightParts[] = {
    {"mlp.gate_proj.weight", Split::kRows, extent::kIntermediate, extent::kHidden},
    {"mlp.up_proj.weight", Split::kRows, extent::kIntermediate, extent::kHidden}};
inline constexpr Part kGateUpBiasParts[] = {
    {"mlp.gate_proj.bias", Split::kRows, extent::kIntermediate},
    {"mlp.up_proj.bias", Split::kRows, extent::kIntermediate}};
// Stored as the engine holds it, gate above up.
inline constexpr Part kFusedGateUpParts[] = {
    {"mlp.gate_up_proj.weight", Split::kRows, extent::kIntermediate, extent::kHidden},
    {"mlp.gate_up_proj.weight", Split::kRows, extent::kIntermediate, extent::kHidden}};
inline constexpr Part kDownWeightPart[] = {
    {"mlp.down_proj.weight", Split::kColumns, extent::kHidden, extent::kIntermediate}};
inline constexpr Part kDownBiasPart[] = {
    {"mlp.down_proj.bias", Split::kReplicated, extent::kHidden}};
inline constexpr Part kInputNormPart[] = {
    {"input_layernorm.weight", Split::kReplicated, extent::kHidden}};
inline constexpr Part kPostAttentionNormPart[] = {
    {"post_attention_layernorm.weight", Split::kReplicated, extent::kHidden}};
inline constexpr Part kNormPart[] = {{"model.norm.weight", Split::kReplicated, extent::kHidden}};
inline constexpr Part kHeadPart[] = {
    {"lm_head.weight", Split::kVocabRows, extent::kVocab, extent::kHidden}};

constexpr Rule in_transformers(Rule rule, const InTransformers& how) {
  rule.transformers = how;
  return rule;
}
// transformers' model has it, vLLM's has not.
constexpr Rule not_in_vllm(Rule rule) {
  rule.target = {};
  return rule;
}

inline constexpr Rule kEmbedding{Scope::kFirstStage, "model.embed_tokens.weight", kEmbeddingPart};
inline constexpr Rule kQkvWeight{Scope::kLayer, "self_attn.qkv_proj.weight", kQkvWeightParts};
constexpr Rule qkv_bias(Presence presence) {
  return {Scope::kLayer, "self_attn.qkv_proj.bias", kQkvBiasParts, presence};
}
inline constexpr Rule kOutputWeight{Scope::kLayer, "self_attn.o_proj.weight", kOutputWeightPart};
inline constexpr Rule kOutputBias{Scope::kLayer, "self_attn.o_proj.bias", kOutputBiasPart,
                                  presence::kAttentionBias};
inline constexpr Rule kQueryNorm{Scope::kLayer, "self_attn.q_norm.weight", kQueryNormPart};
inline constexpr Rule kKeyNorm{Scope::kLayer, "self_attn.k_norm.weight", kKeyNormPart};
inline constexpr Rule kGateUpWeight{Scope::kLayer, "mlp.gate_up_proj.weight", kGateUpWeightParts};
inline constexpr Rule kGateUpBias{Scope::kLayer, "mlp.gate_up_proj.bias", kGateUpBiasParts,
                                  presence::kMlpBias};
inline constexpr Rule kFusedGateUp{Scope::kLayer, "mlp.gate_up_proj.weight", kFusedGateUpParts};
inline constexpr Rule kDownWeight{Scope::kLayer, "mlp.down_proj.weight", kDownWeightPart};
inline constexpr Rule kDownBias{Scope::kLayer, "mlp.down_proj.bias", kDownBiasPart,
                                presence::kMlpBias};
inline constexpr Rule kInputNorm{Scope::kLayer, "input_layernorm.weight", kInputNormPart};
inline constexpr Rule kPostAttentionNorm{Scope::kLayer, "post_attention_layernorm.weight",
                                         kPostAttentionNormPart};
inline constexpr Rule kNorm{Scope::kLastStage, "model.norm.weight", kNormPart};
inline constexpr Rule kHead{Scope::kLastStage, "lm_head.weight", kHeadPart, presence::kAlways,
                            "model.embed_tokens.weight"};

// Tables of rotary positions that older exporters stored; engines compute them (vLLM's
// AutoWeightsLoader drops the same names).
inline constexpr std::string_view kRotaryTables[] = {
    "*rotary_emb.inv_freq", "*rotary_pos_emb.inv_freq", "*rotary_emb.cos_cached",
    "*rotary_emb.sin_cached"};

}  // namespace preload::decoder
