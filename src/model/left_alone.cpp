// SPDX-License-Identifier: Apache-2.0
#include "model/left_alone.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <utility>

namespace preload {

bool matches_glob(std::string_view pattern, const std::string& name) {
  return fnmatch(std::string(pattern).c_str(), name.c_str(), 0) == 0;
}

Leftovers sort_leftovers(const Checkpoint& checkpoint, const std::vector<bool>& consumed,
                         std::vector<std::string> reasons,
                         std::span<const std::string_view> engine_ignores,
                         const std::vector<std::string>& user_ignores) {
  Leftovers out;
  std::vector<bool> used(user_ignores.size(), false);
  for (std::size_t i = 0; i < checkpoint.tensors.size(); ++i) {
    const std::string& name = checkpoint.tensors[i].name;
    std::string& reason = reasons[i];
    for (std::size_t p = 0; p < user_ignores.size(); ++p) {
      if (!matches_glob(user_ignores[p], name)) continue;
      used[p] = true;
      if (consumed[i]) {
        out.needed.push_back(name);
        break;
      }
      if (reason.empty()) reason = fmt::format("--ignore-tensor {}", user_ignores[p]);
    }
    if (consumed[i]) continue;
    for (const std::string_view pattern : engine_ignores) {
      if (reason.empty() && matches_glob(pattern, name)) {
        reason = "computed by the engine from the config";
      }
    }
    if (reason.empty()) {
      out.unconsumed.push_back(name);
    } else {
      out.left_alone.push_back({static_cast<std::uint32_t>(i), std::move(reason)});
    }
  }
  for (std::size_t p = 0; p < used.size(); ++p) {
    if (!used[p]) out.idle.push_back(user_ignores[p]);
  }
  return out;
}

}  // namespace preload
