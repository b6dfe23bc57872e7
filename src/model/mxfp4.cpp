// SPDX-License-Identifier: Apache-2.0
#include "model/mxfp4.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace preload {
namespace {

constexpr std::int64_t kBlock = 32;
constexpr std::int64_t kInAByte = 2;
// Gate and up alternate from row to row, so that a rank's rows are those of both.
constexpr std::int64_t kGateAndUp = 2;

// What ranks share is cut between blocks, by whole ones: vLLM 0.32 models/gpt_oss.py,
// _load_weights_mxfp4. What a kernel wants beyond that is padded behind.
void cut_by_blocks(LayoutPart& part, const ExpertSizes& sizes, RuleStyle style) {
  const bool pads = style == RuleStyle::kEngine;
  const std::int64_t hidden = pads ? sizes.hidden : 1;
  const std::int64_t intermediate = pads ? sizes.intermediate : 1;
  if (part.split == Split::kRows) {
    part.row_unit = kGateAndUp * kBlock;
    part.row_padding = pads ? kGateAndUp * intermediate : 1;
    if (!part.one_axis()) part.column_padding = hidden;
  } else {
    part.row_padding = hidden;
    if (part.split != Split::kColumns) return;
    part.column_unit = kBlock;
    part.column_padding = intermediate;
  }
}

LayoutRule packed(const LayoutRule& rule, std::string_view target_suffix,
                  std::string_view stored_suffix, std::int64_t elements, const ExpertSizes& sizes,
                  RuleStyle style) {
  LayoutRule out = rule;
  out.content = Content::kQuantised;
  out.dtype = DType::kU8;
  for (LayoutPart& part : out.parts) {
    part.stored += stored_suffix;
    part.transposed = false;
    part.exact = DType::kU8;
    part.column_block = elements;
    cut_by_blocks(part, sizes, style);
  }
  out.target =
      style == RuleStyle::kEngine ? out.target.append(target_suffix) : out.parts.front().stored;
  return out;
}

}  // namespace

std::vector<LayoutRule> with_mxfp4_experts(const std::vector<LayoutRule>& rules,
                                           const ExpertSizes& sizes, RuleStyle style) {
  std::vector<LayoutRule> out;
  std::vector<LayoutRule> biases;  // the engine has them behind all weights
  for (const LayoutRule& rule : rules) {
    if (rule.share != Share::kExperts) {
      std::ranges::move(biases, std::back_inserter(out));
      biases.clear();
      out.push_back(rule);
    } else if (rule.parts.front().one_axis()) {
      LayoutRule& bias = biases.emplace_back(rule);
      for (LayoutPart& part : bias.parts) cut_by_blocks(part, sizes, style);
      if (style == RuleStyle::kEngine) bias.dtype = DType::kBF16;
    } else {
      out.push_back(packed(rule, "", "_blocks", kInAByte, sizes, style));
      for (LayoutPart& part : out.back().parts) part.group = kBlock / kInAByte;
      out.push_back(packed(rule, "_scale", "_scales", kBlock, sizes, style));
    }
  }
  std::ranges::move(biases, std::back_inserter(out));
  return out;
}

std::vector<std::string> mxfp4_refusals(const ModelSpec& spec, std::string_view backend,
                                        const ExpertSizes& sizes, int ranks, RuleStyle style) {
  std::vector<std::string> reasons;
  for (const auto& [name, value] :
       {std::pair<std::string_view, std::int64_t>{"hidden_size", spec.hidden_size},
        {"intermediate_size", spec.intermediate_size}}) {
    if (value % kBlock == 0) continue;
    reasons.push_back(
        fmt::format("{} {} is no multiple of MXFP4's blocks of {}", name, value, kBlock));
  }
  const std::int64_t share = spec.intermediate_size / ranks;
  if (style == RuleStyle::kEngine && sizes.exact && share % sizes.intermediate != 0) {
    reasons.push_back(
        fmt::format("intermediate_size {} over {} ranks is no multiple of {}, which the MoE "
                    "backend {} refuses: "
                    "name one that pads",
                    spec.intermediate_size, ranks, sizes.intermediate, backend));
  }
  return reasons;
}

}  // namespace preload
