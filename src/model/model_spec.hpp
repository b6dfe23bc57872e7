// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/dtype.hpp"
#include "model/config_fields.hpp"

namespace preload {

// config.json as far as sharding needs it. Absent numbers are 0.
struct ModelSpec {
  std::string architecture;  // architectures[0], e.g. "LlamaForCausalLM"; empty when not stated
  std::string model_type;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // defaults to num_attention_heads
  std::int64_t head_dim = 0;             // defaults to hidden_size / num_attention_heads
  std::int64_t vocab_size = 0;
  std::int64_t num_experts = 0;  // or num_local_experts, n_routed_experts
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool qkv_bias = false;  // defaults to attention_bias
  bool mlp_bias = false;
  std::optional<DType> dtype;          // torch_dtype or dtype
  std::int64_t target_vocab_size = 0;  // of a draft's target
  std::string quantization;            // quantization_config.quant_method, empty when none
  std::string quantization_json;       // quantization_config itself
  ConfigFields config;                 // all of it, for what only some families have
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// What the top level does not state is read from its "text_config", except the architecture and the
// quantisation. Throws Error(kModel) with the position of malformed JSON or, for an architecture
// with sharding rules, the name of a field of wrong type; any other's numbers are not needed.
// `overrides_json` is --hf-overrides ("" or an object laid over the config).
ModelSpec parse_model_spec(const std::string& config_json, const std::string& overrides_json);

}  // namespace preload
