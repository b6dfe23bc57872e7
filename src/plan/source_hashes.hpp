// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"
#include "plan/key.hpp"
#include "plan/load_plan.hpp"

namespace preload {

// A region of one source tensor that some rank read, and its contribution to the tensor's hash.
struct SourceRegion {
  std::uint32_t source = 0;
  std::uint64_t offset = 0;  // bytes from the tensor's first byte
  std::uint64_t rows = 1;
  std::uint64_t row_bytes = 0;
  std::uint64_t stride = 0;
  Hash128 hash = {};
  friend bool operator==(const SourceRegion&, const SourceRegion&) = default;
};

struct CombinedHashes {
  std::vector<SourceHash> hashes;     // of tensors whose distinct regions tile them, by source
  std::vector<std::uint32_t> rehash;  // read but not tiled: to be hashed from the file
};
// Adds regions of all ranks, replicas once. Throws Error(kDevice) naming the tensor when two ranks
// that read the same region disagree about its bytes.
CombinedHashes combine_regions(const Checkpoint& checkpoint, std::vector<SourceRegion> regions);

std::string encode_regions(const std::vector<SourceRegion>& regions);
std::vector<SourceRegion> decode_regions(std::string_view bytes);

}  // namespace preload
