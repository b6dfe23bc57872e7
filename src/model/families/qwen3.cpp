// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

// vLLM 0.32 model_executor/models/qwen3.py: norms over each head of q and k; attention_bias gives
// q, k and v biases but o_proj none.
constexpr Rule kRules[] = {
    kEmbedding,
    kQkvWeight,
    qkv_bias(presence::kAttentionBias),
    kOutputWeight,
    not_in_vllm(kOutputBias),
    kQueryNorm,
    kKeyNorm,
    kGateUpWeight,
    kDownWeight,
    kInputNorm,
    kPostAttentionNorm,
    kNorm,
    kHead,
};

// transformers' Qwen3Config, where config.json is silent.
constexpr ConfigDefault kDefaults[] = {{"head_dim", 128}};

}  // namespace

extern const Family qwen3{.architecture = "Qwen3ForCausalLM",
                          .layer_prefix = kLayerPrefix,
                          .rules = kRules,
                          .ignored = kRotaryTables,
                          .defaults = kDefaults};

}  // namespace preload::families
