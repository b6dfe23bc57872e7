// SPDX-License-Identifier: Apache-2.0
#include "model/part_shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "model/extents.hpp"

namespace preload {
namespace {

// The reason why one part cannot be cut for `ranks`, empty when it can; `flags` is what their
// number comes from.
std::string why_indivisible(const LayoutPart& part, const ModelSpec& spec, int ranks,
                            std::string_view flags) {
  switch (part.split) {
    case Split::kReplicated:
    case Split::kFirstRank:
      return {};
    case Split::kRows:
    case Split::kColumns: {
      const std::string& text = part.split == Split::kRows ? part.row_text : part.column_text;
      const std::int64_t extent = part.split == Split::kRows ? part.rows : part.columns;
      // Heads are cut whole, wherever they are: one message for what makes them and what takes
      // them.
      if (text.starts_with(extent::kHeads.text)) break;
      if (extent % ranks == 0) return {};
      return fmt::format("{} {} is not divisible by {}", text, extent, flags);
    }
    case Split::kVocabRows:
      if (padded_vocab(part.rows) % ranks == 0) return {};
      return fmt::format("{} {}, padded to {}, is not divisible by {}", part.row_text, part.rows,
                         padded_vocab(part.rows), flags);
    case Split::kQueryHeads:
      break;
    case Split::kKvHeads:
      if (heads_divide(spec.num_key_value_heads, ranks)) return {};
      return fmt::format("num_key_value_heads {} and {}: one must divide by the other",
                         spec.num_key_value_heads, flags);
  }
  if (spec.num_attention_heads % ranks == 0) return {};
  return fmt::format("num_attention_heads {} is not divisible by {}", spec.num_attention_heads,
                     flags);
}

// An axis that ranks share in whole units; what is padded, is so to the same size on each.
AxisShard shared_axis(std::int64_t extent, std::int64_t unit, std::int64_t padding,
                      const TpShare& share) {
  if (unit == 1) return even_shard(extent, share.size, share.rank);
  AxisShard axis = unit_shard(extent, unit, share.size, share.rank);
  if (padding > 1) axis.extent = extent / share.size;
  return axis;
}

void pad(AxisShard& axis, std::int64_t padding) {
  axis.extent = (axis.extent + padding - 1) / padding * padding;
}

PartShard weight_shard(const LayoutPart& part, const ModelSpec& spec, const TpShare& share) {
  PartShard shard{whole_axis(part.rows), whole_axis(part.columns)};
  switch (part.split) {
    case Split::kReplicated:
      break;
    case Split::kRows:
    case Split::kQueryHeads:
      shard.rows = shared_axis(part.rows, part.row_unit, part.row_padding, share);
      break;
    case Split::kColumns:
      shard.columns = shared_axis(part.columns, part.column_unit, part.column_padding, share);
      break;
    case Split::kVocabRows:
      shard.rows = vocab_shard(part.rows, share.size, share.rank);
      break;
    case Split::kKvHeads:
      shard.rows = head_shard(spec.num_key_value_heads, part.rows / spec.num_key_value_heads,
                              share.size, share.rank);
      break;
    case Split::kFirstRank:
      if (share.rank > 0) shard.rows.stored.count = 0;
      break;
  }
  pad(shard.rows, part.row_padding);
  pad(shard.columns, part.column_padding);
  return shard;
}

// The same axis counted in blocks, the last of which may be cut short.
AxisShard in_blocks(const AxisShard& axis, std::int64_t block) {
  const auto blocks = [&](std::int64_t elements) { return (elements + block - 1) / block; };
  return {{axis.stored.begin / block, blocks(axis.stored.count)}, blocks(axis.extent)};
}

// Blocks of experts that ranks would cut vLLM 0.32 takes apart into finer ones down to this
// (layers/fused_moe/oracle/fp8.py, refine_fp8_moe_block_shape).
constexpr std::int64_t kFinestBlock = 32;

// Why the blocks of a weight's scale do not fit the ranks' shares, as vLLM 0.32 has it
// (layers/quantization/utils/fp8_utils.py, validate_fp8_block_shape and its MoE counterpart).
std::string why_cut(const LayoutRule& rule, std::size_t index, const ModelSpec& spec,
                    const TpShare& share) {
  const LayoutPart& part = rule.parts[index];
  const PartShard weight = weight_shard(part, spec, share);
  const auto cuts = [&](std::string_view axis, std::int64_t extent, std::int64_t block) {
    if (block == 1 || extent % block == 0) return std::string();
    const bool refined = rule.share == Share::kExperts &&
                         std::gcd(std::gcd(part.row_block, part.column_block),
                                  std::gcd(extent, spec.hidden_size)) >= kFinestBlock;
    return fmt::format("{}: a rank's {} {} of the weight are no multiple of its blocks of {}, {}",
                       part.stored, extent, axis, block,
                       refined ? "of which vLLM makes finer ones, a form that is not built"
                               : "which vLLM refuses");
  };
  const bool rows_split = share.size > 1 && weight.rows.extent < part.rows;
  // Parts under each other meet at whole blocks; only what comes last may end within one.
  const bool meets =
      rule.parts.size() > 1 && (index + 1 < rule.parts.size() || rule.share == Share::kExperts);
  std::string reason;
  if (rows_split || meets) {
    reason = cuts("rows", weight.rows.extent, part.row_block);
  }
  if (reason.empty() && share.size > 1 && weight.columns.extent < part.columns &&
      part.column_block < part.columns) {
    reason = cuts("columns", weight.columns.extent, part.column_block);
  }
  return reason;
}

}  // namespace

PartShard shard_of(const LayoutPart& part, const ModelSpec& spec, const TpShare& share) {
  const PartShard weight = weight_shard(part, spec, share);
  return {in_blocks(weight.rows, part.row_block), in_blocks(weight.columns, part.column_block)};
}

std::vector<std::string> indivisible(const LayoutRule& rule, const ModelSpec& spec,
                                     const RankShare& share) {
  std::vector<std::string> reasons;
  const TpShare own = share.of(rule.share);
  const int ranks = own.size;
  if (rule.content == Content::kScale) {
    for (std::size_t i = 0; i < rule.parts.size(); ++i) {
      if (std::string reason = why_cut(rule, i, spec, own); !reason.empty()) {
        reasons.push_back(std::move(reason));
      }
    }
    return reasons;  // the weight's own are listed with the weight
  }
  if (ranks == 1) return reasons;
  const std::string flags =
      rule.share == Share::kExperts && ranks > share.model.size
          ? fmt::format(
                "--data-parallel-size {} x --tensor-parallel-size {}, which share each "
                "expert without --enable-expert-parallel",
                ranks / share.model.size, share.model.size)
          : fmt::format("--tensor-parallel-size {}", ranks);
  for (const LayoutPart& part : rule.parts) {
    std::string reason = why_indivisible(part, spec, ranks, flags);
    if (!reason.empty()) reasons.push_back(std::move(reason));
  }
  return reasons;
}

}  // namespace preload
