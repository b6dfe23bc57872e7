// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/dims.hpp"
#include "model/family.hpp"
#include "model/model_spec.hpp"
#include "plan/shards.hpp"

namespace preload {

std::int64_t extent_of(Extent extent, const ModelSpec& spec) noexcept;
// "num_attention_heads * head_dim"; how a message explains a size.
std::string_view extent_text(Extent extent) noexcept;

// Shape of the stored tensor as the config states it.
Dims stored_shape(const Part& part, const ModelSpec& spec);

// What one rank holds of a stored tensor. A tensor of one axis has a single column.
struct PartShard {
  AxisShard rows;
  AxisShard columns;

  std::int64_t stored_elements() const noexcept { return rows.stored.count * columns.stored.count; }
  std::int64_t elements() const noexcept { return rows.extent * columns.extent; }
};
PartShard shard_of(const Part& part, const ModelSpec& spec, int tp_size, int tp_rank);

// Why `rules` cannot be cut for `tp_size` ranks, one line a reason, by the engine's own conditions.
std::vector<std::string> indivisible(const std::vector<const Rule*>& rules, const ModelSpec& spec,
                                     int tp_size);

}  // namespace preload
