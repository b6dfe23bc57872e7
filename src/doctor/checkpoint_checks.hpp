// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.hpp"
#include "doctor/check.hpp"
#include "load/file_system.hpp"

namespace preload::doctor {

// Where a checkpoint's files lie and how many of their bytes are in the page cache.
struct CheckpointFacts {
  int files = 0;
  std::uint64_t bytes = 0, cached_bytes = 0;
  FileSystemKind kind = FileSystemKind::kLocal;
};
CheckpointFacts gather_checkpoint_facts(const Checkpoint& checkpoint);
Check check_checkpoint(const CheckpointFacts& facts, const std::string& directory);

}  // namespace preload::doctor
