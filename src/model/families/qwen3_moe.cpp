// SPDX-License-Identifier: Apache-2.0
#include "model/moe_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;
using namespace moe;

// vLLM 0.32 model_executor/models/qwen3_moe.py: attention as in Qwen3; decoder_sparse_step and
// mlp_only_layers say which layers have experts; embeddings, final norm and head are built on every
// pipeline stage.
constexpr Rule kRules[] = {
    kEmbedding,
    kQkvWeight,
    qkv_bias(presence::kAttentionBias),
    kOutputWeight,
    not_in_vllm(kOutputBias),
    kQueryNorm,
    kKeyNorm,
    dense(kGateUpWeight),
    dense(kDownWeight),
    kRouter,
    kSharedExpertGate,
    kSharedExpertGateUp,
    kSharedExpertDown,
    kSharedExpertGateOfExpert,
    kRouterOfExperts,
    kExpertGateUp,
    kExpertDown,
    kSharedGateUpOfExperts,
    kSharedDownOfExperts,
    kSharedGateOfExperts,
    kInputNorm,
    kPostAttentionNorm,
    kNorm,
    kHead,
};

}  // namespace

extern const Family qwen3_moe{.architecture = "Qwen3MoeForCausalLM",
                              .layer_prefix = kLayerPrefix,
                              .rules = kRules,
                              .ignored = kRotaryTables,
                              .experts = {.sparse = is_every_nth_layer, .one_a_rank = true},
                              .ends_on_every_stage = true};

}  // namespace preload::families
