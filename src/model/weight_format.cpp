// SPDX-License-Identifier: Apache-2.0
#include "model/weight_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace preload {
namespace {

using nlohmann::json;

LayoutRule constant(std::string target, double value, bool vector, std::optional<DType> dtype) {
  LayoutRule rule;
  rule.target = std::move(target);
  rule.constant = value;
  rule.constant_vector = vector;
  rule.dtype = dtype;
  return rule;
}

FormatChoice refused(std::string why) { return {std::nullopt, std::move(why)}; }

// [rows, columns] of a block; nothing unless they are two positive numbers.
std::optional<std::pair<std::int64_t, std::int64_t>> block_of(const json& value) {
  if (!value.is_array() || value.size() != 2) return std::nullopt;
  for (const json& side : value) {
    if (!side.is_number_integer() || side.get<std::int64_t>() < 1) return std::nullopt;
  }
  return std::pair(value[0].get<std::int64_t>(), value[1].get<std::int64_t>());
}

// DeepSeek's format. vLLM 0.32 layers/quantization/fp8.py and kv_cache.py: block scales are
// weight_scale_inv; attention holds scales of -1 until calibrated ones are loaded.
FormatChoice fp8_format(const json& config) {
  const json scheme = config.value("activation_scheme", json("dynamic"));
  if (scheme != "dynamic" && scheme != "static") {
    return refused(fmt::format("fp8 with activation_scheme {} is not built", scheme.dump()));
  }
  WeightFormat format{.scale = "weight_scale", .per_weight = true};
  if (const json size = config.value("weight_block_size", json()); !size.is_null()) {
    const auto block = block_of(size);
    if (!block) return refused("fp8 with a weight_block_size other than two numbers is not built");
    if (scheme == "static") return refused("fp8 blocks with static input scales are not built");
    format = {
        .scale = "weight_scale_inv", .block_rows = block->first, .block_columns = block->second};
  } else if (scheme == "static") {
    format.input_scale = "input_scale";
  }
  for (const char* name : {"q_scale", "k_scale", "v_scale", "prob_scale"}) {
    format.attention.push_back(constant(name, -1, false, std::nullopt));
  }
  return {std::move(format), {}};
}

// vLLM 0.32 layers/quantization/compressed_tensors/: weights of 8-bit floats with one scale a row
// or a block; attention holds scales of 1 and zero points of 0.
FormatChoice compressed_format(const json& config) {
  const std::string kind = config.value("format", json()).dump();
  const json& groups = config.value("config_groups", json::object());
  if (!groups.is_object() || groups.size() != 1) {
    return refused("compressed-tensors with several config_groups, or none, is not built");
  }
  const json& group = *groups.begin();
  const json weights = group.is_object() ? group.value("weights", json::object()) : json::object();
  const json inputs = group.is_object() ? group.value("input_activations", json()) : json();
  const bool float8 = weights.is_object() && weights.value("num_bits", json()) == 8 &&
                      weights.value("type", json()) == "float";
  if (!float8) {
    return refused(
        fmt::format("compressed-tensors of format {} is not built: only 8-bit float "
                    "weights are",
                    kind));
  }
  if (!config.value("kv_cache_scheme", json()).is_null()) {
    return refused("compressed-tensors with a kv_cache_scheme is not built");
  }
  WeightFormat format{.scale = "weight_scale"};
  const bool fixed = inputs.is_object() && inputs.value("dynamic", json()) != true;
  const json strategy = weights.value("strategy", json());
  if (strategy == "block") {
    const auto block = block_of(weights.value("block_structure", json()));
    if (!block) return refused("compressed-tensors blocks without a block_structure are not built");
    format.block_rows = block->first;
    format.block_columns = block->second;
  } else if (strategy == "tensor") {
    format.per_weight = true;
  } else if (strategy != "channel") {
    return refused(fmt::format("compressed-tensors with the weight strategy {} is not built",
                               strategy.dump()));
  }
  if (fixed && !format.per_weight) {
    return refused("compressed-tensors with static input scales is built for tensor scales only");
  }
  if (fixed) format.input_scale = "input_scale";
  for (const char* name : {"k_scale", "v_scale", "q_scale"}) {
    format.attention.push_back(constant(name, 1, true, DType::kF32));
  }
  for (const char* name : {"k_zero_point", "v_zero_point", "q_zero_point"}) {
    format.attention.push_back(constant(name, 0, true, std::nullopt));
  }
  return {std::move(format), {}};
}

// "x.weight" as "x.<scale>", "w13_weight" as "w13_<scale>".
std::string renamed(const std::string& name, const std::string& scale) {
  constexpr std::string_view kWeight = "weight";
  return name.substr(0, name.size() - kWeight.size()) + scale;
}

// A scale for all of a weight, the same on every rank.
LayoutPart one_scale(const LayoutPart& weight) {
  LayoutPart scale;
  scale.stored = weight.stored;
  scale.row_text = "one scale";
  scale.scalar = true;
  scale.per_expert = weight.per_expert;
  return scale;
}

LayoutRule scale_rule(const LayoutRule& weight, const WeightFormat& format, const std::string& name,
                      bool whole) {
  LayoutRule scale = weight;
  scale.target = renamed(weight.target, name);
  scale.content = Content::kScale;
  scale.dtype.reset();
  if (!weight.alias_of.empty()) scale.alias_of = renamed(weight.alias_of, name);
  // What lies in one stored tensor has one scale.
  if (whole && weight.as_stored) scale.parts.erase(scale.parts.begin() + 1, scale.parts.end());
  for (LayoutPart& part : scale.parts) {
    if (whole) {
      part = one_scale(part);
    } else {
      part.row_block = format.block_rows;
      part.column_block = format.block_columns > 0 ? format.block_columns : part.columns;
    }
    part.stored = renamed(part.stored, name);
  }
  place_rows(scale.parts);
  return scale;
}

}  // namespace

FormatChoice weight_format(const ModelSpec& spec) {
  const json config = json::parse(spec.quantization_json, nullptr, false);
  if (!config.is_object()) return refused("its quantization_config is no object");
  if (spec.quantization == "fp8") return fp8_format(config);
  if (spec.quantization == "compressed-tensors") return compressed_format(config);
  return refused(
      fmt::format("its quantization_config says {}, and sharding rules for that are not "
                  "built",
                  spec.quantization));
}

std::string why_not_built(const LayoutRule& rule, const WeightFormat& format) {
  if (!format.per_weight || rule.as_stored) return {};
  if (rule.share == Share::kExperts) return "experts with one scale for each weight are not built";
  for (std::size_t i = 1; i < rule.parts.size(); ++i) {
    if (rule.parts[i].stored == rule.parts.front().stored) {
      return fmt::format("one scale for all of {}, which the engine takes apart, is not built",
                         rule.parts.front().stored);
    }
  }
  return {};
}

std::string scale_of(const LayoutRule& rule, const WeightFormat& format) {
  if (rule.parts.empty() || rule.parts.front().one_axis() ||
      !rule.parts.front().stored.ends_with("weight")) {
    return {};
  }
  return renamed(rule.parts.front().stored, format.scale);
}

std::vector<LayoutRule> with_scales(const std::vector<LayoutRule>& rules,
                                    const std::vector<bool>& quantised, const WeightFormat& format,
                                    RuleStyle style, std::string_view attention) {
  std::vector<LayoutRule> out;
  std::vector<LayoutRule> scales;  // of the experts so far: behind all of their weights
  const auto is_quantised = [&](std::string_view target) {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      if (rules[i].target == target) return static_cast<bool>(quantised[i]);
    }
    return false;
  };
  // The attention's own parameters come after those of its projections.
  const std::string parent(attention.substr(0, attention.rfind('.')));
  const auto is_output = [&](const LayoutRule& rule) {
    return rule.target.starts_with(parent + ".o_proj.");
  };
  const auto last = std::find_if(rules.rbegin(), rules.rend(), is_output);
  const bool constants = style == RuleStyle::kEngine && !attention.empty() && last != rules.rend();
  const std::size_t constants_behind =
      constants ? static_cast<std::size_t>(rules.rend() - last) - 1 : rules.size();
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const bool gathers = style == RuleStyle::kEngine && rules[i].share == Share::kExperts;
    if (!gathers) {
      std::ranges::move(scales, std::back_inserter(out));
      scales.clear();
    }
    out.push_back(rules[i]);
    if (quantised[i] || (!rules[i].alias_of.empty() && is_quantised(rules[i].alias_of))) {
      out.back().content = Content::kQuantised;
      std::vector<LayoutRule>& to = gathers ? scales : out;
      to.push_back(scale_rule(rules[i], format, format.scale, format.per_weight));
      if (!format.input_scale.empty()) {
        to.push_back(scale_rule(rules[i], format, format.input_scale, true));
      }
    }
    if (i != constants_behind) continue;
    for (LayoutRule rule : format.attention) {
      rule.target = fmt::format("{}.{}", attention, rule.target);
      out.push_back(std::move(rule));
    }
  }
  std::ranges::move(scales, std::back_inserter(out));
  return out;
}

}  // namespace preload
