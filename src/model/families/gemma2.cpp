// SPDX-License-Identifier: Apache-2.0
#include "model/gemma_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;
using namespace gemma;

// vLLM 0.32 model_executor/models/gemma2.py: the logits come from embed_tokens, so that there is no
// head; transformers has one, tied.
constexpr Rule kRules[] = {
    kEmbedding,         kQkvWeight,    qkv_bias(presence::kAttentionBias),
    kOutputWeight,      kOutputBias,   kGateUpWeight,
    kDownWeight,        kInputNorm,    kPostAttentionNorm,
    kBeforeMlpNorm,     kAfterMlpNorm, kNorm,
    not_in_vllm(kHead),
};

}  // namespace

extern const Family gemma2{.architecture = "Gemma2ForCausalLM",
                           .layer_prefix = kLayerPrefix,
                           .rules = kRules,
                           .ignored = kRotaryTables,
                           .ends_on_every_stage = true,
                           .defaults = kDefaults};

}  // namespace preload::families
