// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/decoder_rules.hpp"

// Rules of Gemma 2 and 3, from vLLM 0.32 model_executor/models/gemma2.py and gemma3.py: four norms
// a layer; embeddings, final norm and head are built on every pipeline stage.
namespace preload::gemma {

inline constexpr Part kBeforeMlpNormPart[] = {
    {"pre_feedforward_layernorm.weight", Split::kReplicated, extent::kHidden}};
inline constexpr Part kAfterMlpNormPart[] = {
    {"post_feedforward_layernorm.weight", Split::kReplicated, extent::kHidden}};

inline constexpr Rule kBeforeMlpNorm{.target = "pre_feedforward_layernorm.weight",
                                     .parts = kBeforeMlpNormPart};
inline constexpr Rule kAfterMlpNorm{.target = "post_feedforward_layernorm.weight",
                                    .parts = kAfterMlpNormPart};

inline constexpr Rule kGemma3Rules[] = {
    decoder::kEmbedding,
    decoder::kQkvWeight,
    decoder::qkv_bias(presence::kAttentionBias),
    decoder::kOutputWeight,
    decoder::kOutputBias,
    decoder::kQueryNorm,
    decoder::kKeyNorm,
    decoder::kGateUpWeight,
    decoder::kDownWeight,
    decoder::kInputNorm,
    decoder::kPostAttentionNorm,
    kBeforeMlpNorm,
    kAfterMlpNorm,
    decoder::kNorm,
    decoder::kHead,
};

// What transformers' Gemma2Config and Gemma3TextConfig say where config.json is silent: Google's
// own configs leave most of it out.
inline constexpr ConfigDefault kDefaults[] = {{"tie_word_embeddings", true},
                                              {"num_attention_heads", 8},
                                              {"num_key_value_heads", 4},
                                              {"head_dim", 256}};

}  // namespace preload::gemma
