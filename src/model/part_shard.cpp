// SPDX-License-Identifier: Apache-2.0
#include "model/part_shard.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace preload {
namespace {

// The reason why one part cannot be cut, empty when it can.
std::string why_indivisible(const Part& part, const ModelSpec& spec, int tp) {
  switch (part.split) {
    case Split::kReplicated:
      return {};
    case Split::kRows:
    case Split::kColumns: {
      const Extent extent = part.split == Split::kRows ? part.rows : part.columns;
      // Query heads are cut whole, wherever they are: one message for q_proj and o_proj.
      if (extent == Extent::kQuery) break;
      if (extent_of(extent, spec) % tp == 0) return {};
      return fmt::format("{} {} is not divisible by --tensor-parallel-size {}", extent_text(extent),
                         extent_of(extent, spec), tp);
    }
    case Split::kVocabRows:
      if (padded_vocab(spec.vocab_size) % tp == 0) return {};
      return fmt::format(
          "vocab_size {}, padded to {}, is not divisible by --tensor-parallel-size {}",
          spec.vocab_size, padded_vocab(spec.vocab_size), tp);
    case Split::kQueryHeads:
      break;
    case Split::kKvHeads:
      if (heads_divide(spec.num_key_value_heads, tp)) return {};
      return fmt::format(
          "num_key_value_heads {} and --tensor-parallel-size {}: one must divide by the other",
          spec.num_key_value_heads, tp);
  }
  if (spec.num_attention_heads % tp == 0) return {};
  return fmt::format("num_attention_heads {} is not divisible by --tensor-parallel-size {}",
                     spec.num_attention_heads, tp);
}

}  // namespace

std::int64_t extent_of(Extent extent, const ModelSpec& spec) noexcept {
  switch (extent) {
    case Extent::kHidden:
      return spec.hidden_size;
    case Extent::kIntermediate:
      return spec.intermediate_size;
    case Extent::kVocab:
      return spec.vocab_size;
    case Extent::kHeadDim:
      return spec.head_dim;
    case Extent::kQuery:
      return spec.num_attention_heads * spec.head_dim;
    case Extent::kKeyValue:
      return spec.num_key_value_heads * spec.head_dim;
    case Extent::kOne:
      break;
  }
  return 1;
}

std::string_view extent_text(Extent extent) noexcept {
  switch (extent) {
    case Extent::kHidden:
      return "hidden_size";
    case Extent::kIntermediate:
      return "intermediate_size";
    case Extent::kVocab:
      return "vocab_size";
    case Extent::kHeadDim:
      return "head_dim";
    case Extent::kQuery:
      return "num_attention_heads * head_dim";
    case Extent::kKeyValue:
      return "num_key_value_heads * head_dim";
    case Extent::kOne:
      break;
  }
  return "1";
}

Dims stored_shape(const Part& part, const ModelSpec& spec) {
  Dims shape{extent_of(part.rows, spec)};
  if (part.columns != Extent::kOne) shape.push_back(extent_of(part.columns, spec));
  return shape;
}

PartShard shard_of(const Part& part, const ModelSpec& spec, int tp_size, int tp_rank) {
  const std::int64_t rows = extent_of(part.rows, spec);
  PartShard shard{whole_axis(rows), whole_axis(extent_of(part.columns, spec))};
  switch (part.split) {
    case Split::kReplicated:
      break;
    case Split::kRows:
    case Split::kQueryHeads:
      shard.rows = even_shard(rows, tp_size, tp_rank);
      break;
    case Split::kColumns:
      shard.columns = even_shard(shard.columns.extent, tp_size, tp_rank);
      break;
    case Split::kVocabRows:
      shard.rows = vocab_shard(rows, tp_size, tp_rank);
      break;
    case Split::kKvHeads:
      shard.rows = head_shard(spec.num_key_value_heads, spec.head_dim, tp_size, tp_rank);
      break;
  }
  return shard;
}

std::vector<std::string> indivisible(const std::vector<const Rule*>& rules, const ModelSpec& spec,
                                     int tp_size) {
  std::vector<std::string> reasons;
  const auto add = [&](std::string reason) {
    if (!reason.empty() && std::ranges::find(reasons, reason) == reasons.end()) {
      reasons.push_back(std::move(reason));
    }
  };
  if (tp_size == 1) return reasons;
  for (const Rule* rule : rules) {
    add(std::string(rule->tp_refusal));
    for (const Part& part : rule->parts) add(why_indivisible(part, spec, tp_size));
  }
  return reasons;
}

}  // namespace preload
