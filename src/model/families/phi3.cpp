// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;

// Stored as the engine holds them, q above k above v and gate above up: a rank takes its heads, or
// its half, of each.
constexpr Part kFusedQkvParts[] = {
    {"self_attn.qkv_proj.weight", Split::kQueryHeads, extent::kQuery, extent::kHidden},
    {"self_attn.qkv_proj.weight", Split::kKvHeads, extent::kKeyValue, extent::kHidden},
    {"self_attn.qkv_proj.weight", Split::kKvHeads, extent::kKeyValue, extent::kHidden}};

constexpr Rule kFusedQkv{.target = "self_attn.qkv_proj.weight", .parts = kFusedQkvParts};

// vLLM 0.32 model_executor/models/phi3.py: Llama with fused projections in the checkpoint.
constexpr Rule kRules[] = {
    kEmbedding, kFusedQkv,          kOutputWeight, kFusedGateUp, kDownWeight,
    kInputNorm, kPostAttentionNorm, kNorm,         kHead,
};

}  // namespace

extern const Family phi3{.architecture = "Phi3ForCausalLM",
                         .layer_prefix = kLayerPrefix,
                         .rules = kRules,
                         .ignored = kRotaryTables};

}  // namespace preload::families
