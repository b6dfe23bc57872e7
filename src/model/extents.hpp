// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/family.hpp"
#include "model/model_spec.hpp"

// The sizes and conditions that families share. A family with others defines them in its own file.
namespace preload::extent {

inline constexpr Extent kOne{};
inline constexpr Extent kHidden{"hidden_size", [](const ModelSpec& s) { return s.hidden_size; }};
inline constexpr Extent kIntermediate{"intermediate_size",
                                      [](const ModelSpec& s) { return s.intermediate_size; }};
inline constexpr Extent kVocab{"vocab_size", [](const ModelSpec& s) { return s.vocab_size; }};
inline constexpr Extent kHeadDim{"head_dim", [](const ModelSpec& s) { return s.head_dim; }};
inline constexpr Extent kHeads{"num_attention_heads",
                               [](const ModelSpec& s) { return s.num_attention_heads; }};
inline constexpr Extent kQuery{"num_attention_heads * head_dim", [](const ModelSpec& s) {
                                 return s.num_attention_heads * s.head_dim;
                               }};
inline constexpr Extent kKeyValue{"num_key_value_heads * head_dim", [](const ModelSpec& s) {
                                    return s.num_key_value_heads * s.head_dim;
                                  }};
inline constexpr Extent kExperts{"number of experts",
                                 [](const ModelSpec& s) { return s.num_experts; }};
inline constexpr Extent kExpertIntermediate{"moe_intermediate_size", [](const ModelSpec& s) {
                                              return s.config.number("moe_intermediate_size");
                                            }};

}  // namespace preload::extent

namespace preload::presence {

inline constexpr Presence kAlways = nullptr;
inline constexpr Presence kQkvBias = [](const ModelSpec& s) { return s.qkv_bias; };
inline constexpr Presence kAttentionBias = [](const ModelSpec& s) { return s.attention_bias; };
// transformers reads no other field, whatever vLLM makes of "bias" and "qkv_bias".
inline constexpr Presence kAttentionBiasField = [](const ModelSpec& s) {
  return s.config.flag("attention_bias");
};
inline constexpr Presence kNever = [](const ModelSpec&) { return false; };
inline constexpr Presence kMlpBias = [](const ModelSpec& s) { return s.mlp_bias; };

}  // namespace preload::presence
