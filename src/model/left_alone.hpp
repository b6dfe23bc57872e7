// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/copy_program.hpp"

namespace preload {

// What becomes of the checkpoint's tensors that no target takes. The same on every rank.
struct Leftovers {
  std::vector<LeftAlone> left_alone;
  std::vector<std::string> unconsumed;  // names that nothing excuses
  std::vector<std::string> needed;      // names that --ignore-tensor matches but a target takes
  std::vector<std::string> idle;        // --ignore-tensor patterns that match nothing
};

// `consumed` and `reasons` are one entry per checkpoint tensor; an empty reason is none yet.
Leftovers sort_leftovers(const Checkpoint& checkpoint, const std::vector<bool>& consumed,
                         std::vector<std::string> reasons,
                         std::span<const std::string_view> engine_ignores,
                         const std::vector<std::string>& user_ignores);

bool matches_glob(std::string_view pattern, const std::string& name);

}  // namespace preload
