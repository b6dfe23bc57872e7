// SPDX-License-Identifier: Apache-2.0
#include "model/moe_rules.hpp"

namespace preload::families {
namespace {

using namespace decoder;
using namespace moe;

constexpr Part kGatePart[] = {
    {"block_sparse_moe.gate.weight", Split::kReplicated, extent::kExperts, extent::kHidden}};
constexpr Part kGateUpParts[] = {
    {"block_sparse_moe.experts.*.w1.weight", Split::kRows, extent::kIntermediate, extent::kHidden},
    {"block_sparse_moe.experts.*.w3.weight", Split::kRows, extent::kIntermediate, extent::kHidden}};
constexpr Part kDownPart[] = {{"block_sparse_moe.experts.*.w2.weight", Split::kColumns,
                               extent::kHidden, extent::kIntermediate}};

// vLLM 0.32 model_executor/models/mixtral.py: every layer has experts; no biases; embeddings, final
// norm and head are built on every pipeline stage.
constexpr Rule kRules[] = {
    kEmbedding,
    kQkvWeight,
    kOutputWeight,
    in_transformers(sparse("block_sparse_moe.gate.weight", kGatePart), {"mlp.gate.weight"}),
    experts("block_sparse_moe.experts.routed_experts.w13_weight", kGateUpParts,
            kGateUpInTransformers),
    experts("block_sparse_moe.experts.routed_experts.w2_weight", kDownPart, kDownInTransformers),
    kInputNorm,
    kPostAttentionNorm,
    kNorm,
    kHead,
};

constexpr bool every_layer(const ModelSpec&, std::int64_t) { return true; }

// transformers' MixtralConfig, where config.json is silent.
constexpr ConfigDefault kDefaults[] = {{"num_key_value_heads", 8}, {"num_local_experts", 8}};

}  // namespace

extern const Family mixtral{.architecture = "MixtralForCausalLM",
                            .layer_prefix = kLayerPrefix,
                            .rules = kRules,
                            .ignored = kRotaryTables,
                            .experts = {.sparse = every_layer},
                            .ends_on_every_stage = true,
                            .defaults = kDefaults};

}  // namespace preload::families
