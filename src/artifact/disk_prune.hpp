// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "artifact/disk_tier.hpp"

namespace preload::artifact {

// Under the lock of the root. Temporaries and records that a crash left go as well, and folders
// without entries.
DiskTier::Pruned prune_files(int root, const PruneRule& rule);

}  // namespace preload::artifact
