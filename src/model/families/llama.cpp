// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

constexpr InTransformers kBiases{.presence = presence::kAttentionBiasField};

// vLLM 0.32 model_executor/models/llama.py: LlamaDecoderLayer reads attention_bias (or bias),
// qkv_bias and mlp_bias; LlamaForCausalLM ties lm_head to embed_tokens.
constexpr Rule kRules[] = {
    kEmbedding,
    kQkvWeight,
    in_transformers(qkv_bias(presence::kQkvBias), kBiases),
    kOutputWeight,
    in_transformers(kOutputBias, kBiases),
    kGateUpWeight,
    kGateUpBias,
    kDownWeight,
    kDownBias,
    kInputNorm,
    kPostAttentionNorm,
    kNorm,
    kHead,
};

}  // namespace

extern const Family llama{"LlamaForCausalLM", kLayerPrefix, kRules, kRotaryTables};

}  // namespace preload::families
