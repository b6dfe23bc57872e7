// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/weight_file.hpp"
#include "checkpoint/weight_selection.hpp"

namespace preload {

// Compares what the index promises with what the headers hold. An index that is merely stale is a
// problem that says so, or with `rebuild_index` a warning; a tensor that no header holds is always
// a problem.
void check_index(const ShardIndex& index, const std::vector<WeightFile>& files, bool rebuild_index,
                 std::vector<std::string>& warnings, Problems& problems);

// Whether headers of files that a stale index does not name hold all that it promises.
bool hold_everything(const ShardIndex& index, const std::vector<WeightFile>& files);

// A tensor that several files hold: with equal bytes the copy that the index names stays (the first
// one without an index), with one warning for all; different ones are a problem.
void drop_duplicates(int directory, const ShardIndex* index, std::vector<WeightFile>& files,
                     std::vector<std::string>& warnings, Problems& problems);

}  // namespace preload
