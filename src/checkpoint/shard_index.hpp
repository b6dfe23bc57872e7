// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/problems.hpp"

namespace preload {

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

// model.safetensors.index.json: which file each tensor is said to be in.
struct ShardIndex {
  std::map<std::string, std::string, std::less<>> weight_map;  // tensor → file
  std::vector<std::string> files() const;                      // sorted, each once
};

// Nothing when it is malformed (with the position), names a tensor twice, or names a file outside
// of the checkpoint's directory or of another format.
std::optional<ShardIndex> parse_shard_index(std::string_view json, Problems& problems);

}  // namespace preload
