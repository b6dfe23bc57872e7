// SPDX-License-Identifier: Apache-2.0
#include "model/draft_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

constexpr Extent kTwoHidden{"2 * hidden_size",
                            [](const ModelSpec& s) { return 2 * s.hidden_size; }};
constexpr Part kJoinPart[] = {{"model.fc.weight", Split::kReplicated, extent::kHidden, kTwoHidden}};

// vLLM 0.32 model_executor/models/llama_eagle.py: Llama's layers behind a projection of embedding
// and hidden state; the first has no input norm, and there is no norm and no head behind the last.
constexpr Rule kRules[] = {
    draft::if_stored(kEmbedding),
    kQkvWeight,
    qkv_bias(presence::kQkvBias),
    kOutputWeight,
    kOutputBias,
    kGateUpWeight,
    kGateUpBias,
    kDownWeight,
    kDownBias,
    draft::later(kInputNorm),
    kPostAttentionNorm,
    {.scope = Scope::kLastStage, .target = "model.fc.weight", .parts = kJoinPart},
};

// The checkpoint has the layers at its top.
constexpr StoredName kNames[] = {{"model.", ""}};

}  // namespace

extern const Family llama_eagle{
    .architecture = "EagleLlamaForCausalLM",
    .layer_prefix = kLayerPrefix,
    .rules = kRules,
    .ignored = kRotaryTables,
    .draft = {.layers = draft::all_layers, .names = kNames, .joins = true}};

}  // namespace preload::families
