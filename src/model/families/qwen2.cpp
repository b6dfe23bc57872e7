// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

// vLLM 0.32 model_executor/models/qwen2.py: q, k and v always have biases, nothing else has.
constexpr Rule kRules[] = {
    kEmbedding,  kQkvWeight, qkv_bias(presence::kAlways), kOutputWeight, kGateUpWeight,
    kDownWeight, kInputNorm, kPostAttentionNorm,          kNorm,         kHead,
};

}  // namespace

extern const Family qwen2{"Qwen2ForCausalLM", kLayerPrefix, kRules, kRotaryTables};

}  // namespace preload::families
