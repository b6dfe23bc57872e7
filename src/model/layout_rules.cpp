// SPDX-License-Identifier: Apache-2.0
#include "model/layout_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace preload {
namespace {

LayoutPart layout_part(const Part& part, const Rule& rule, const ModelSpec& spec) {
  LayoutPart out;
  out.stored = part.stored;
  out.split = part.split;
  out.row_text = part.rows.text;
  out.rows = part.rows.of(spec);
  if (part.columns.of != nullptr) {
    out.column_text = part.columns.text;
    out.columns = part.columns.of(spec);
  }
  out.stored_rows = out.rows;
  out.transposed = part.transposed;
  if (rule.dtype && !is_wide_float(*rule.dtype)) out.exact = rule.dtype;
  if (rule.share == Share::kExperts) {
    out.per_expert = part.stored.find('*') != std::string_view::npos;
    if (!out.per_expert) out.experts = spec.num_experts;
  }
  return out;
}

LayoutRule layout_rule(const Family& family, const Rule& rule, const ModelSpec& spec) {
  const bool in_block = rule.scope == Scope::kLayer && !rule.outside_block;
  const std::string block(in_block ? family.draft.block : "");
  LayoutRule out;
  out.target = block + std::string(rule.target);
  for (const Part& part : rule.parts) out.parts.push_back(layout_part(part, rule, spec));
  place_rows(out.parts);
  out.share = rule.share;
  out.dtype = rule.dtype;
  if (!rule.alias_of.empty()) out.alias_of = block + std::string(rule.alias_of);
  out.if_stored = rule.if_stored;
  out.tied_to = rule.tied_to;
  out.tp_refusal = rule.tp_refusal;
  out.kind = rule.kind;
  return out;
}

// The stored name of what the engine calls `target`.
std::string stored_name(const Family& family, std::string_view target) {
  const auto at = std::ranges::find(family.rules, target, &Rule::target);
  return std::string(at == family.rules.end() ? target : at->parts.front().stored);
}

// One rule for each stored tensor, which keeps its name and its axes.
void add_as_stored(const Family& family, const LayoutRule& rule, std::vector<LayoutRule>& out) {
  for (std::size_t first = 0; first < rule.parts.size();) {
    LayoutRule& stored = out.emplace_back();
    stored.target = rule.parts[first].stored;
    stored.share = rule.share;
    stored.as_stored = true;
    if (!rule.tied_to.empty()) stored.tied_to = stored_name(family, rule.tied_to);
    stored.tp_refusal = rule.tp_refusal;
    stored.if_stored = rule.if_stored;
    for (; first < rule.parts.size() && rule.parts[first].stored == stored.target; ++first) {
      stored.parts.push_back(rule.parts[first]);
    }
  }
}

}  // namespace

std::vector<LayoutRule> layout_rules(const Family& family, const ModelSpec& spec, Scope scope,
                                     Layers layers, RuleStyle style) {
  std::vector<LayoutRule> rules;
  for (const Rule& rule : family.rules) {
    const bool wanted = rule.scope == scope &&
                        (rule.layers == Layers::kAll || rule.layers == layers) &&
                        (rule.presence == nullptr || rule.presence(spec));
    if (!wanted) continue;
    LayoutRule resolved = layout_rule(family, rule, spec);
    if (style == RuleStyle::kAsStored) {
      add_as_stored(family, resolved, rules);
    } else {
      rules.push_back(std::move(resolved));
    }
  }
  return rules;
}

void place_rows(std::vector<LayoutPart>& parts) {
  for (std::size_t first = 0; first < parts.size();) {
    std::size_t last = first;
    std::int64_t rows = 0;
    for (; last < parts.size() && parts[last].stored == parts[first].stored; ++last) {
      parts[last].first_row = rows;
      rows += parts[last].own_rows();
    }
    for (; first < last; ++first) parts[first].stored_rows = rows;
  }
}

Dims stored_shape(const LayoutPart& part) {
  Dims shape{part.stored_rows};
  if (!part.one_axis()) shape.push_back(part.own_columns());
  if (part.transposed) shape = Dims{part.own_columns(), part.stored_rows};
  if (part.experts == 0) return shape;
  Dims whole{part.experts};
  for (const std::int64_t extent : shape) whole.push_back(extent);
  return whole;
}

std::string stored_shape_text(const LayoutPart& part) {
  const auto text_of = [](const std::string& text, std::int64_t block) {
    return block == 1 ? text : fmt::format("({}) / {}", text, block);
  };
  const std::string rows = part.stored_rows == part.own_rows()
                               ? text_of(part.row_text, part.row_block)
                               : "all that it is made of";
  const std::string columns = text_of(part.column_text, part.column_block);
  const std::string text = part.one_axis()   ? rows
                           : part.transposed ? columns + ", " + rows
                                             : rows + ", " + columns;
  return part.experts == 0 ? text : "number of experts, " + text;
}

}  // namespace preload
