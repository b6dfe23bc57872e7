// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "model/layout.hpp"

namespace preload {

// Content hash of one consumed source tensor; unset for tensors that no program consumes.
struct SourceHash {
  std::uint32_t source = 0;
  Hash128 hash;
  friend bool operator==(const SourceHash&, const SourceHash&) = default;
};

// SHA-256 over the canonical list of {name, dtype, shape, H} of what is consumed and
// {name, dtype, shape} of the rest, sorted by name; 64 hex digits.
std::string checkpoint_id(const Checkpoint& checkpoint, const std::vector<SourceHash>& consumed);

// The key's fields by name; values are canonical text, so that a mismatch can show both.
using KeyFields = std::map<std::string, std::string>;
KeyFields key_fields(const ModelSpec& spec, const LayoutRequest& request,
                     const CopyProgram& program, const ParallelSizes& sizes, const RankCoords& rank,
                     const std::string& checkpoint_id);
std::string key_digest(const KeyFields& fields);  // SHA-256 of the canonical JSON, 64 hex digits

}  // namespace preload
