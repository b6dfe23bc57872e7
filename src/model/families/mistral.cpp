// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

// transformers' Mistral has no biases.
constexpr InTransformers kBiases{.presence = presence::kNever};

// vLLM 0.32 model_executor/models/mistral.py: MistralDecoderLayer is LlamaDecoderLayer with another
// attention; the stored names are Hugging Face's (consolidated files are another format).
constexpr Rule kRules[] = {
    kEmbedding,
    kQkvWeight,
    in_transformers(qkv_bias(presence::kQkvBias), kBiases),
    kOutputWeight,
    in_transformers(kOutputBias, kBiases),
    kGateUpWeight,
    in_transformers(kGateUpBias, kBiases),
    kDownWeight,
    in_transformers(kDownBias, kBiases),
    kInputNorm,
    kPostAttentionNorm,
    kNorm,
    kHead,
};

// transformers' MistralConfig, where config.json is silent.
constexpr ConfigDefault kDefaults[] = {{"num_key_value_heads", 8}};

}  // namespace

extern const Family mistral{.architecture = "MistralForCausalLM",
                            .layer_prefix = kLayerPrefix,
                            .rules = kRules,
                            .ignored = kRotaryTables,
                            .defaults = kDefaults};

}  // namespace preload::families
