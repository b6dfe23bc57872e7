// SPDX-License-Identifier: Apache-2.0
#include "model/weight_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace preload {
namespace {

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

std::string why_not_built(const LayoutRule& rule, const WeightFormat& format) {
  if (!format.per_weight || rule.as_stored) return {};
  if (rule.share == Share::kExperts && !rule.parts.front().per_expert) {
    return fmt::format("one scale for each expert of {} is not built", rule.parts.front().stored);
  }
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

std::vector<std::string> unused_input_scales(const LayoutRule& rule, const WeightFormat& format,
                                             RuleStyle style) {
  std::vector<std::string> names;
  const bool gathers = style == RuleStyle::kEngine && rule.share == Share::kExperts;
  for (std::size_t i = 0; gathers && !format.input_scale.empty() && i + 1 < rule.parts.size();
       ++i) {
    names.push_back(renamed(rule.parts[i].stored, format.input_scale));
  }
  return names;
}

LayoutRule kv_rule(LayoutRule constant, std::string stored, RuleStyle style) {
  LayoutPart& part = constant.parts.emplace_back();
  part.row_text = "one scale";
  part.scalar = true;
  part.stored = std::move(stored);
  constant.constant.reset();
  if (style == RuleStyle::kEngine) {
    constant.engine_writes = true;
    return constant;
  }
  constant.target = part.stored;
  constant.content = Content::kScale;
  constant.dtype.reset();
  constant.as_stored = true;
  return constant;
}

std::vector<LayoutRule> with_scales(const std::vector<LayoutRule>& rules,
                                    const std::vector<bool>& quantised, const WeightFormat& format,
                                    RuleStyle style, std::string_view attention) {
  std::vector<LayoutRule> out;
  // Of the experts so far: behind all of their weights, those of inputs last.
  std::vector<LayoutRule> scales;
  std::vector<LayoutRule> input_scales;
  const auto flush = [&] {
    for (std::vector<LayoutRule>* held : {&scales, &input_scales}) {
      std::ranges::move(*held, std::back_inserter(out));
      held->clear();
    }
  };
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
    if (!gathers) flush();
    out.push_back(rules[i]);
    if (quantised[i] || (!rules[i].alias_of.empty() && is_quantised(rules[i].alias_of))) {
      out.back().content = Content::kQuantised;
      std::vector<LayoutRule>& to = gathers ? scales : out;
      to.push_back(scale_rule(rules[i], format, format.scale, format.per_weight));
      if (!format.input_scale.empty()) {
        std::vector<LayoutRule>& inputs = gathers ? input_scales : out;
        inputs.push_back(scale_rule(rules[i], format, format.input_scale, true));
        // What gate and up take has one scale: that of the last to be loaded.
        std::vector<LayoutPart>& parts = inputs.back().parts;
        if (gathers && !parts.empty()) parts.erase(parts.begin(), parts.end() - 1);
      }
    }
    if (i != constants_behind) continue;
    for (LayoutRule rule : format.attention) {
      rule.target = fmt::format("{}.{}", attention, rule.target);
      out.push_back(std::move(rule));
    }
  }
  flush();
  return out;
}

}  // namespace preload
