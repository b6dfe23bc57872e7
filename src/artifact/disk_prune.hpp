// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "artifact/disk_tier.hpp"

namespace preload::artifact {

// Under the lock of the root. The entry that was used last stays within any limit, whatever its
// size. Temporaries and records that a crash left go as well, and folders without entries.
std::vector<Key> prune_files(int root, const PruneRule& rule);
// Throws Error when it cannot be removed.
void remove_file(int root, const Key& key);

}  // namespace preload::artifact
