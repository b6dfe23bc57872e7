// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.hpp"
#include "cli/verify_hashes.hpp"
#include "plan/shard_description.hpp"

namespace preload::cli {

// Compares what is served with the checkpoint itself: the shard's program is made again from its
// description and the headers, and the bytes of each move, cast as the loader casts them, are
// compared by hash with the place they should have come to; elements that no move reaches with
// their fill. Throws Error(kCheckpoint) and Error(kModel) as a load of that checkpoint would.
std::vector<TensorMismatch> verify_source(const client::Attachment& attachment,
                                          const ShardDescription& description,
                                          const Checkpoint& checkpoint, int threads);

}  // namespace preload::cli
