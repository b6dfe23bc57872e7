// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/cancel.hpp"
#include "checkpoint/checkpoint.hpp"
#include "load/source_files.hpp"
#include "plan/key.hpp"

namespace preload {

// Hashes whole source tensors from their files on the CPU, several threads (0: by the CPUs at
// hand), bounded memory. Tensors without bytes have no hash. Throws Error(kCheckpoint) when a file
// is gone, changed or short.
std::vector<SourceHash> hash_sources(const Checkpoint& checkpoint,
                                     const std::vector<std::uint32_t>& sources, int threads,
                                     const Cancel& cancel, const ReadOptions& reading = {});

// The receipt store under the cache root: hashes remembered under the files' stat receipts. What
// was not used for longest goes when the store grows past its limits. Throws never: an unreadable
// store is a store without the entry.
std::optional<std::vector<SourceHash>> recall_hashes(const Checkpoint& checkpoint);
void remember_hashes(const Checkpoint& checkpoint, const std::vector<SourceHash>& hashes);

}  // namespace preload
