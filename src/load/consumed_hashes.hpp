// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/cancel.hpp"
#include "checkpoint/checkpoint.hpp"
#include "model/copy_program.hpp"
#include "plan/key.hpp"

namespace preload {

// Of each of the checkpoint's tensors: whether the ranks of a job consume it together, which is all
// that no rank leaves alone.
std::vector<bool> consumed_sources(const Checkpoint& checkpoint, const CopyProgram& program);

// What is remembered of the content hashes of what is consumed, and the tensors of the others.
struct ConsumedHashes {
  std::vector<SourceHash> known;
  std::vector<std::uint32_t> missing;
};
ConsumedHashes recall_consumed(const Checkpoint& checkpoint, const CopyProgram& program);

// All of them: what is not remembered is read, on several threads, and remembered.
std::vector<SourceHash> consumed_hashes(const Checkpoint& checkpoint, const CopyProgram& program,
                                        const Cancel& cancel = {});

}  // namespace preload
