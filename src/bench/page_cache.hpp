// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/checkpoint.hpp"

namespace preload::bench {

// Throws Error(kUsage) with the remedy when the page cache cannot be dropped (it takes root), or
// when a file lies in memory, where dropping it changes nothing.
void check_can_be_cold(const Checkpoint& checkpoint);
// Writes 1 to /proc/sys/vm/drop_caches after a sync. Warns of a file that stays cached all the
// same.
void drop_page_cache(const Checkpoint& checkpoint);
// Reads the files through the page cache. Warns of a file that does not stay there.
void fill_page_cache(const Checkpoint& checkpoint, int threads);

}  // namespace preload::bench
