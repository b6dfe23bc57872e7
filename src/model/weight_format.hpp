// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/kernel_backend.hpp"
#include "model/layout.hpp"
#include "model/layout_rules.hpp"
#include "model/model_spec.hpp"

namespace preload {

// How a checkpoint's quantised weights are stored: F8_E4M3 with scales beside them.
struct WeightFormat {
  std::string scale;               // the scale's name instead of "weight"
  std::int64_t block_rows = 1;     // of a weight that share a scale
  std::int64_t block_columns = 0;  // 0: all of a row
  bool per_weight = false;         // one scale for all of a weight
  std::string input_scale = {};    // the scale of its input, one for all; empty: made at run time
  std::optional<ExpertSizes> mxfp4 = {};  // experts are MXFP4, and nothing else is quantised
  // What vLLM keeps beside every attention for a quantised KV cache, never loaded here.
  std::vector<LayoutRule> attention = {};
  friend bool operator==(const WeightFormat&, const WeightFormat&) = default;
};

// The format that quantization_config states, or why it is none that can be served in shards.
struct FormatChoice {
  std::optional<WeightFormat> format;
  std::string refusal;
};
FormatChoice weight_format(const ModelSpec& spec, const LayoutRequest& request);

// `rules` with those that `quantised` marks read as quantised weights, and the rules of their
// scales. `attention` is the module whose constants the engine keeps; empty: none.
std::vector<LayoutRule> with_scales(const std::vector<LayoutRule>& rules,
                                    const std::vector<bool>& quantised, const WeightFormat& format,
                                    RuleStyle style, std::string_view attention);

// The stored input scales of a rule's quantised experts that the engine does not keep: it has one
// for gate and up.
std::vector<std::string> unused_input_scales(const LayoutRule& rule, const WeightFormat& format,
                                             RuleStyle style);

// A rule that takes what `constant` stands for from the checkpoint, where it is `stored`.
LayoutRule kv_rule(LayoutRule constant, std::string stored, RuleStyle style);

// Why the engine's form of quantised weights like these is not built; empty: it is.
std::string why_not_built(const LayoutRule& rule, const WeightFormat& format);

// The stored name of the scale of a rule's first weight; empty when it can have none.
std::string scale_of(const LayoutRule& rule, const WeightFormat& format);

}  // namespace preload
