// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.hpp"
#include "checkpoint/checkpoint.hpp"
#include "load/loader.hpp"
#include "plan/load_plan.hpp"
#include "support/temp_dir.hpp"

namespace preload::test {

// A checkpoint of random bytes and a program and plan that use every kind of move: whole tensors,
// slices, fused parts, transposes, interleaved and converted rows, fills, constants, aliases,
// scalars, tensors without elements; odd sizes and unaligned offsets throughout.
struct RandomLoad {
  explicit RandomLoad(std::uint64_t seed, std::uint64_t max_rows = 400);

  TempDir directory;
  Checkpoint checkpoint;
  CopyProgram program;
  LoadPlan plan;
  std::vector<std::string> file_bytes;

  // What a load must give, by walking the plan one element at a time.
  std::vector<std::string> expected_extents() const;   // bytes of each tensor's place
  std::vector<Hash128> expected_served() const;        // over row-major bytes
  std::vector<Hash128> expected_source() const;        // per op that has bytes
  std::vector<SourceRegion> expected_regions() const;  // the same, with what was read
  std::uint64_t op_bytes() const;
};

// A result's contributions, in the order of what was read.
std::vector<Hash128> source_hashes(const LoadResult& result);

// Stat values as a header reader would have recorded them.
SourceFile describe_file(const TempDir& directory, const std::string& name);

}  // namespace preload::test
