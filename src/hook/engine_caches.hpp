// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace preload::hook {

// Where engines keep what they tune and compile, below one directory that all ranks of a node and
// the engines after them share: each of these caches finds its entries by content or by lock.
//   <root>/caches/vllm …     the trees, which are what is kept as artifacts
//   <root>/environment.sh    for `.` in a shell that starts an engine
struct EngineCache {
  std::string variable;  // "TRITON_CACHE_DIR"
  std::string folder;    // absolute
  bool given = false;    // by the user's environment, which has the last word
  friend bool operator==(const EngineCache&, const EngineCache&) = default;
};

// `inherited` are NAME=VALUE. A variable that is set there, and not empty, keeps its value.
std::vector<EngineCache> engine_caches(const std::string& root,
                                       const std::vector<std::string>& inherited);

// The directory of all trees.
std::string caches_folder(const std::string& root);
// The folder that `variable` names.
std::string folder_of(const std::vector<EngineCache>& caches, std::string_view variable);

// Makes the folders that are ours, and environment.sh, whose path it returns. Throws Error naming
// what cannot be made.
// `more` are further variables that engines are to have, by name.
std::string prepare(const std::string& root, const std::vector<EngineCache>& caches,
                    const std::map<std::string, std::string>& more = {});

}  // namespace preload::hook
