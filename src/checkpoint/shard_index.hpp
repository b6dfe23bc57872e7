// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/problems.hpp"

namespace preload {

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

// model.safetensors.index.json: which file each tensor is said to be in.
struct ShardIndex {
  struct Entry {
    std::string tensor;
    std::string file;
  };
  std::vector<Entry> entries;  // sorted by tensor, each once

  const std::string* file_of(std::string_view tensor) const;  // nullptr when it is not named
  std::vector<std::string> files() const;                     // sorted, each once
};

// Nothing when it is malformed (with the position), names a tensor twice, or names a file outside
// of the checkpoint's directory or of another format.
std::optional<ShardIndex> parse_shard_index(std::string_view json, Problems& problems);

}  // namespace preload
