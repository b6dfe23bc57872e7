// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/problems.hpp"
#include "checkpoint/shard_index.hpp"

namespace preload {

// The names directly in a checkpoint's directory, sorted.
std::vector<std::string> list_directory(int directory, const std::string& path);

// Which files hold the weights, judged by names alone.
struct WeightSelection {
  std::vector<std::string> files;   // sorted
  std::optional<ShardIndex> index;  // what they are expected to hold
  bool rebuilt = false;             // `files` are from the directory although there is an index
  std::vector<std::string> warnings;
};

// By the index where there is one, else by the directory. With `rebuild_index` an index that names
// missing files or cannot be read is no problem: the directory then says which files there are.
WeightSelection select_weights(int directory, const std::vector<std::string>& entries,
                               bool rebuild_index, Problems& problems);

// Without an index: model.safetensors; else the one complete set of numbered shards; else the only
// safetensors file. Anything else is a problem, since a guess might mix two models.
std::vector<std::string> weights_by_name(const std::vector<std::string>& entries,
                                         std::vector<std::string>& warnings, Problems& problems);

}  // namespace preload
