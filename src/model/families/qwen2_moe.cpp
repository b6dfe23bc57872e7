// SPDX-License-Identifier: Apache-2.0
#include "model/moe_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;
using namespace moe;

// The gate of the shared expert is there also where the expert has no size.
constexpr Rule kGate = [] {
  Rule rule = kSharedExpertGate;
  rule.presence = nullptr;
  return rule;
}();

// vLLM 0.32 model_executor/models/qwen2_moe.py: q, k and v always have biases; the shared expert is
// sharded also under sequence-parallel MoE, which the block is not told of; embeddings, final norm
// and head are built on every pipeline stage.
constexpr Rule kRules[] = {
    kEmbedding,
    kQkvWeight,
    qkv_bias(presence::kAlways),
    kOutputWeight,
    dense(kGateUpWeight),
    dense(kDownWeight),
    kRouter,
    kGate,
    kSharedExpertGateUp,
    kSharedExpertDown,
    kSharedExpertGateOfExpert,
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

extern const Family qwen2_moe{.architecture = "Qwen2MoeForCausalLM",
                              .layer_prefix = kLayerPrefix,
                              .rules = kRules,
                              .ignored = kRotaryTables,
                              .experts = {.sparse = is_every_nth_layer, .one_a_rank = true},
                              .ends_on_every_stage = true};

}  // namespace preload::families
