// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

// vLLM 0.32 model_executor/models/mistral.py: MistralDecoderLayer is LlamaDecoderLayer with another
// attention; the stored names are Hugging Face's (consolidated files are another format).
constexpr Rule kRules[] = {
    kEmbedding,    kQkvWeight,         qkv_bias(presence::kQkvBias),
    kOutputWeight, kOutputBias,        kGateUpWeight,
    kGateUpBias,   kDownWeight,        kDownBias,
    kInputNorm,    kPostAttentionNorm, kNorm,
    kHead,
};

}  // namespace

extern const Family mistral{"MistralForCausalLM", kLayerPrefix, kRules, kRotaryTables};

}  // namespace preload::families
