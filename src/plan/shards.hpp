// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "plan/topology.hpp"

namespace preload {

// The arithmetic of sharding, all of it: which interval of an axis a rank holds.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t count = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// What one rank holds of an axis: `stored` of it, then padding up to `extent`.
struct AxisShard {
  Interval stored;
  std::int64_t extent = 0;
  friend bool operator==(const AxisShard&, const AxisShard&) = default;
};

// Rows that vLLM pads a vocabulary to a multiple of (DEFAULT_VOCAB_PADDING_SIZE).
inline constexpr std::int64_t kVocabPadding = 64;

// All of it, on every rank.
AxisShard whole_axis(std::int64_t extent) noexcept;
// Equal parts; `extent` divides by `parts`.
AxisShard even_shard(std::int64_t extent, int parts, int index) noexcept;
// Whole units, as many on each rank; the last ranks have fewer, or none, where they do not divide.
AxisShard unit_shard(std::int64_t extent, std::int64_t unit, int parts, int index) noexcept;
// Padded to kVocabPadding, then equal parts; the padding lies behind the last row.
AxisShard vocab_shard(std::int64_t vocab, int parts, int index) noexcept;
// Whole heads; with fewer heads than parts, neighbouring ranks hold replicas of one head.
AxisShard head_shard(std::int64_t heads, std::int64_t head_dim, int parts, int index) noexcept;

std::int64_t padded_vocab(std::int64_t vocab) noexcept;
bool heads_divide(std::int64_t heads, int parts) noexcept;  // one of them divides by the other

// The layers of one pipeline stage, as vLLM's get_pp_indices splits them: the remainder goes to the
// stages before the last, one each, from behind.
Interval stage_layers(std::int64_t layers, int stages, int stage) noexcept;
// The same for the stages of a job, which may have layers of their own (--pipeline-layers).
Interval stage_layers(std::int64_t layers, const ParallelSizes& sizes, int stage) noexcept;

}  // namespace preload
