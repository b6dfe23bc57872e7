// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/hash.hpp"
#include "checkpoint/checkpoint.hpp"
#include "plan/load_plan.hpp"

namespace preload::cli {

// For each op: the hash of the bytes that it brings into its target tensor, read from the files and
// cast where the op casts, at their places in the target's extent. Throws Error(kCheckpoint) naming
// the file when bytes are missing or it changes meanwhile.
std::vector<Hash128> hash_file_regions(const Checkpoint& checkpoint, const std::vector<CopyOp>& ops,
                                       int threads);

}  // namespace preload::cli
