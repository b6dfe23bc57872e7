// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/layout.hpp"
#include "plan/read_plan.hpp"

namespace preload {

// Bytes of one rank's share, without padding between tensors; aliases count once.
struct ShareSize {
  std::uint64_t held_bytes = 0;
  std::uint64_t read_bytes = 0;
  friend bool operator==(const ShareSize&, const ShareSize&) = default;
};

// What the user should know of a layout that can be planned.
struct LayoutNotes {
  std::vector<std::string> warnings;
  std::string unservable;  // why no engine takes it; empty: one does
};

// A checkpoint matched with its layout once, for all ranks of a job. Matching costs one pass over
// the tensors; a rank's program costs what that rank holds, its size next to nothing.
class ModelLayout {
 public:
  virtual ~ModelLayout() = default;
  virtual CopyProgram program(const RankCoords& rank) const = 0;
  virtual ShareSize share(const RankCoords& rank) const = 0;
  // The same number for ranks that hold the same.
  virtual int share_id(const RankCoords& rank) const noexcept = 0;
  // What each of a node's ranks reads and hands on when what several of them need is read once.
  // Blocks under `least_bytes` are read by every rank that needs them.
  virtual std::vector<RankReads> node_reads(std::span<const RankCoords> node,
                                            std::uint64_t least_bytes) const = 0;
  virtual LayoutNotes notes() const { return {}; }
};

// Throws as make_program does. `checkpoint` and `spec` must outlive the result.
std::unique_ptr<ModelLayout> open_layout(const Checkpoint& checkpoint, const ModelSpec& spec,
                                         const LayoutRequest& request, const ParallelSizes& sizes);

}  // namespace preload
