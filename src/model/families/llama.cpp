// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

// vLLM 0.32 model_executor/models/llama.py: LlamaDecoderLayer reads attention_bias (or bias),
// qkv_bias and mlp_bias; LlamaForCausalLM ties lm_head to embed_tokens.
constexpr Rule kRules[] = {
    kEmbedding,    kQkvWeight,         qkv_bias(presence::kQkvBias),
    kOutputWeight, kOutputBias,        kGateUpWeight,
    kGateUpBias,   kDownWeight,        kDownBias,
    kInputNorm,    kPostAttentionNorm, kNorm,
    kHead,
};

}  // namespace

extern const Family llama{"LlamaForCausalLM", kLayerPrefix, kRules, kRotaryTables};

}  // namespace preload::families
