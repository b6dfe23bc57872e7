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
  out.kind = rule.kind;
  return out;
}

// The stored name of what the engine calls `target`.
std::string_view stored_name(const Family& family, std::string_view target) {
  const auto at = std::ranges::find(family.rules, target, &Rule::target);
  return at == family.rules.end() ? target : at->parts.front().stored;
}

// One rule for each stored tensor, which keeps its name and its axes.
void add_as_stored(const LayoutRule& rule, std::vector<LayoutRule>& out) {
  for (std::size_t first = 0; first < rule.parts.size();) {
    LayoutRule& stored = out.emplace_back();
    stored.target = rule.parts[first].stored;
    stored.share = rule.share;
    stored.as_stored = true;
    stored.tied_to = rule.tied_to;
    stored.if_stored = rule.if_stored;
    for (; first < rule.parts.size() && rule.parts[first].stored == stored.target; ++first) {
      stored.parts.push_back(rule.parts[first]);
    }
  }
}

// What transformers' model has of a rule: the stored tensors whole, or one of all parts.
void add_in_transformers(const Rule& rule, LayoutRule resolved, std::vector<LayoutRule>& out) {
  for (LayoutPart& part : resolved.parts) part.split = Split::kReplicated;
  const std::size_t first = out.size();
  if (rule.transformers.name.empty()) {
    add_as_stored(resolved, out);
  } else {
    resolved.target = rule.transformers.name;
    out.push_back(resolved);
  }
  for (std::size_t i = first; i < out.size(); ++i) {
    out[i].kind = rule.transformers.kind;
    out[i].dtype = resolved.dtype;
    // Each of its causal models ties this pair (_tied_weights_keys).
    if (out[i].target == "lm_head.weight") out[i].tied_to = "model.embed_tokens.weight";
  }
}

bool is_wanted(const Rule& rule, const ModelSpec& spec, RuleStyle style) {
  Presence presence = rule.presence;
  if (style == RuleStyle::kTransformers) {
    if (rule.parts.empty()) return false;  // vLLM's constants and second names
    if (rule.transformers.presence != nullptr) presence = rule.transformers.presence;
  } else if (rule.target.empty()) {
    return false;
  }
  return presence == nullptr || presence(spec);
}

}  // namespace

std::vector<LayoutRule> layout_rules(const Family& family, const ModelSpec& spec, Scope scope,
                                     Layers layers, RuleStyle style, const NamePrefixes& stored) {
  std::vector<LayoutRule> rules;
  for (const Rule& rule : family.rules) {
    const bool wanted = rule.scope == scope &&
                        (rule.layers == Layers::kAll || rule.layers == layers) &&
                        is_wanted(rule, spec, style);
    if (!wanted) continue;
    LayoutRule resolved = layout_rule(family, rule, spec);
    if (style == RuleStyle::kEngine) {
      rules.push_back(std::move(resolved));
    } else if (style == RuleStyle::kTransformers) {
      add_in_transformers(rule, std::move(resolved), rules);
    } else {
      if (!rule.tied_to.empty()) resolved.tied_to = stored_name(family, rule.tied_to);
      add_as_stored(resolved, rules);
    }
  }
  const NamePrefixes targets = target_prefixes(family, style, stored);
  for (LayoutRule& rule : rules) {
    rule.target = with_prefixes(rule.target, targets);
    rule.tied_to = with_prefixes(rule.tied_to, targets);
    for (LayoutPart& part : rule.parts) part.stored = with_prefixes(part.stored, stored);
  }
  return rules;
}

NamePrefixes target_prefixes(const Family& family, RuleStyle style, const NamePrefixes& stored) {
  if (family.multimodal.stored.empty() || style == RuleStyle::kAsStored) return stored;
  return style == RuleStyle::kEngine ? family.multimodal.vllm : family.multimodal.transformers;
}

std::string with_prefixes(std::string_view name, const NamePrefixes& prefixes) {
  const NamePrefixes written;
  for (const auto& [from, to] :
       {std::pair{written.model, prefixes.model}, std::pair{written.head, prefixes.head}}) {
    if (name.starts_with(from)) return std::string(to).append(name.substr(from.size()));
  }
  return std::string(name);
}

LayoutRule whole_rule(const SourceTensor& tensor, std::string target) {
  LayoutRule rule;
  rule.target = std::move(target);
  rule.as_stored = true;
  LayoutPart& part = rule.parts.emplace_back();
  part.stored = tensor.name;
  part.whole = tensor.shape;
  part.rows = part.stored_rows = element_count(tensor.shape);
  return rule;
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
  if (part.whole) return *part.whole;
  if (part.scalar) return {};
  Dims shape{part.stored_rows};
  if (!part.one_axis()) {
    shape.push_back(part.group > 0 ? part.own_columns() / part.group : part.own_columns());
  }
  if (part.group > 0) shape.push_back(part.group);
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
  std::string columns = text_of(part.column_text, part.column_block);
  if (part.group > 0) {
    columns = fmt::format("{}, {}", text_of(part.column_text, part.column_block * part.group),
                          part.group);
  }
  const std::string text = part.one_axis()   ? rows
                           : part.transposed ? columns + ", " + rows
                                             : rows + ", " + columns;
  return part.experts == 0 ? text : "number of experts, " + text;
}

}  // namespace preload
