// SPDX-License-Identifier: Apache-2.0
#include "model/moe_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;
using namespace moe;

constexpr Extent kGateAndUp{"2 * intermediate_size",
                            [](const ModelSpec& s) { return 2 * s.intermediate_size; }};

constexpr Part kSinksPart[] = {{"self_attn.sinks", Split::kQueryHeads, extent::kHeads}};
constexpr Part kRouterWeightPart[] = {
    {"mlp.router.weight", Split::kReplicated, extent::kExperts, extent::kHidden}};
constexpr Part kRouterBiasPart[] = {{"mlp.router.bias", Split::kReplicated, extent::kExperts}};
// Gate and up alternate from row to row, in the checkpoint as in the engine.
constexpr Part kGateUpPart[] = {
    {"mlp.experts.gate_up_proj", Split::kRows, kGateAndUp, extent::kHidden, true}};
constexpr Part kGateUpBiasPart[] = {{"mlp.experts.gate_up_proj_bias", Split::kRows, kGateAndUp}};
constexpr Part kDownPart[] = {
    {"mlp.experts.down_proj", Split::kColumns, extent::kHidden, extent::kIntermediate, true}};
constexpr Part kDownExpertBiasPart[] = {
    {"mlp.experts.down_proj_bias", Split::kFirstRank, extent::kHidden}};

constexpr Rule attention(std::string_view target, std::span<const Part> parts) {
  return {.target = target, .parts = parts};
}

// vLLM 0.32 model_executor/models/gpt_oss.py: biases everywhere, attention sinks, experts stored in
// one tensor a layer, input first; embeddings, final norm and head are built on every pipeline
// stage.
constexpr Rule kRules[] = {
    {.scope = Scope::kFirstStage, .target = "model.embedding.weight", .parts = kEmbeddingPart},
    attention("attn.sinks", kSinksPart),
    attention("attn.qkv_proj.weight", kQkvWeightParts),
    attention("attn.qkv_proj.bias", kQkvBiasParts),
    attention("attn.o_proj.weight", kOutputWeightPart),
    attention("attn.o_proj.bias", kOutputBiasPart),
    sparse("mlp.router.weight", kRouterWeightPart),
    sparse("mlp.router.bias", kRouterBiasPart),
    experts(kGateUpTarget, kGateUpPart),
    experts("mlp.experts.routed_experts.w13_bias", kGateUpBiasPart),
    experts(kDownTarget, kDownPart),
    experts("mlp.experts.routed_experts.w2_bias", kDownExpertBiasPart),
    kInputNorm,
    kPostAttentionNorm,
    kNorm,
    {.scope = Scope::kLastStage, .target = "lm_head.weight", .parts = kHeadPart},
};

constexpr bool every_layer(const ModelSpec&, std::int64_t) { return true; }

// transformers' GptOssConfig, where config.json is silent.
constexpr ConfigDefault kDefaults[] = {
    {"head_dim", 64}, {"num_key_value_heads", 8}, {"num_local_experts", 128}};

}  // namespace

extern const Family gpt_oss{.architecture = "GptOssForCausalLM",
                            .layer_prefix = kLayerPrefix,
                            .rules = kRules,
                            .ignored = kRotaryTables,
                            .experts = {.sparse = every_layer, .even = true, .divides_world = true},
                            .ends_on_every_stage = true,
                            .attention = "attn.attn",
                            .defaults = kDefaults,
                            .float32_in_float16 = "norm"};

}  // namespace preload::families
