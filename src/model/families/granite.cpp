// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

constexpr InTransformers kBiases{.presence = presence::kAttentionBiasField};

// vLLM 0.32 model_executor/models/granite.py: Llama's tensors (its multipliers are config alone);
// attention_bias (or bias) and mlp_bias.
constexpr Rule kRules[] = {
    kEmbedding,
    kQkvWeight,
    in_transformers(qkv_bias(presence::kAttentionBias), kBiases),
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

extern const Family granite{.architecture = "GraniteForCausalLM",
                            .layer_prefix = kLayerPrefix,
                            .rules = kRules,
                            .ignored = kRotaryTables};

}  // namespace preload::families
