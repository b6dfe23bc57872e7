// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

constexpr Part kAfterAttentionNormPart[] = {
    {"post_self_attn_layernorm.weight", Split::kReplicated, extent::kHidden}};
constexpr Part kAfterMlpNormPart[] = {
    {"post_mlp_layernorm.weight", Split::kReplicated, extent::kHidden}};

// vLLM 0.32 model_executor/models/glm4.py: gate and up stored fused, a second norm behind attention
// and MLP; attention_bias gives q, k and v biases but o_proj none.
constexpr Rule kRules[] = {
    kEmbedding,
    kQkvWeight,
    qkv_bias(presence::kAttentionBias),
    kOutputWeight,
    kFusedGateUp,
    kDownWeight,
    kInputNorm,
    kPostAttentionNorm,
    {.target = "post_self_attn_layernorm.weight", .parts = kAfterAttentionNormPart},
    {.target = "post_mlp_layernorm.weight", .parts = kAfterMlpNormPart},
    kNorm,
    kHead,
};

constexpr ConfigDefault kDefaults[] = {
    {"attention_bias", true}, {"num_key_value_heads", 2}, {"head_dim", 128}};

}  // namespace

extern const Family glm4{.architecture = "Glm4ForCausalLM",
                         .layer_prefix = kLayerPrefix,
                         .rules = kRules,
                         .ignored = kRotaryTables,
                         .draft_layers = "num_nextn_predict_layers",
                         .defaults = kDefaults};

}  // namespace preload::families
