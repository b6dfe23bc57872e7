// SPDX-License-Identifier: Apache-2.0
#include "plan/shards.hpp"

#include <algorithm>
#include <numeric>

namespace preload {

AxisShard whole_axis(std::int64_t extent) noexcept { return {{0, extent}, extent}; }

AxisShard even_shard(std::int64_t extent, int parts, int index) noexcept {
  const std::int64_t count = extent / parts;
  return {{index * count, count}, count};
}

AxisShard unit_shard(std::int64_t extent, std::int64_t unit, int parts, int index) noexcept {
  const std::int64_t units = (extent + unit - 1) / unit;
  const std::int64_t share = (units + parts - 1) / parts * unit;
  const std::int64_t begin = std::min(extent, index * share);
  const std::int64_t count = std::min(share, extent - begin);
  return {{begin, count}, count};
}

std::int64_t padded_vocab(std::int64_t vocab) noexcept {
  return (vocab + kVocabPadding - 1) / kVocabPadding * kVocabPadding;
}

AxisShard vocab_shard(std::int64_t vocab, int parts, int index) noexcept {
  const std::int64_t extent = padded_vocab(vocab) / parts;
  const std::int64_t begin = std::min(vocab, index * extent);
  return {{begin, std::min(vocab, begin + extent) - begin}, extent};
}

bool heads_divide(std::int64_t heads, int parts) noexcept {
  return heads > 0 && (heads >= parts ? heads % parts == 0 : parts % heads == 0);
}

AxisShard head_shard(std::int64_t heads, std::int64_t head_dim, int parts, int index) noexcept {
  if (heads >= parts) return even_shard(heads * head_dim, parts, index);
  const std::int64_t head = index / (parts / heads);
  return {{head * head_dim, head_dim}, head_dim};
}

Interval stage_layers(std::int64_t layers, int stages, int stage) noexcept {
  const std::int64_t base = layers / stages;
  const std::int64_t remainder = layers % stages;
  // The stages [stages - 1 - remainder, stages - 1) hold one more.
  const std::int64_t first_larger = stages - 1 - remainder;
  const std::int64_t extra_before = std::clamp<std::int64_t>(stage - first_larger, 0, remainder);
  const bool larger = stage >= first_larger && stage < stages - 1;
  return {stage * base + extra_before, base + (larger ? 1 : 0)};
}

Interval stage_layers(std::int64_t layers, const ParallelSizes& sizes, int stage) noexcept {
  if (sizes.stage_layers.empty()) return stage_layers(layers, sizes.pp, stage);
  const auto at = sizes.stage_layers.begin() + stage;
  return {std::accumulate(sizes.stage_layers.begin(), at, std::int64_t{0}), *at};
}

}  // namespace preload
