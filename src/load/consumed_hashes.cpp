// SPDX-License-Identifier: Apache-2.0
#include "load/consumed_hashes.hpp"

#include "load/hash_files.hpp"

namespace preload {

std::vector<bool> consumed_sources(const Checkpoint& checkpoint, const CopyProgram& program) {
  std::vector<bool> consumed(checkpoint.tensors.size(), true);
  for (const LeftAlone& left : program.left_alone) consumed[left.source] = false;
  return consumed;
}

ConsumedHashes recall_consumed(const Checkpoint& checkpoint, const CopyProgram& program) {
  std::vector<bool> wanted = consumed_sources(checkpoint, program);
  ConsumedHashes hashes;
  for (const SourceHash& hash : recall_hashes(checkpoint).value_or(std::vector<SourceHash>{})) {
    if (wanted[hash.source]) hashes.known.push_back(hash);
    wanted[hash.source] = false;
  }
  for (std::uint32_t i = 0; i < checkpoint.tensors.size(); ++i) {
    if (wanted[i] && checkpoint.tensors[i].bytes > 0) hashes.missing.push_back(i);
  }
  return hashes;
}

std::vector<SourceHash> consumed_hashes(const Checkpoint& checkpoint, const CopyProgram& program,
                                        const Cancel& cancel) {
  auto [hashes, missing] = recall_consumed(checkpoint, program);
  if (missing.empty()) return hashes;
  const std::vector<SourceHash> read = hash_sources(checkpoint, missing, 0, cancel);
  remember_hashes(checkpoint, read);  // beside what is remembered of other tensors
  hashes.insert(hashes.end(), read.begin(), read.end());
  return hashes;
}

}  // namespace preload
