// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/model_layout.hpp"

namespace preload {

// The hf layout of a model that needs no rules: every tensor whole and under its stored name, on
// every rank. For architectures without rules and quantised checkpoints, at tp = pp = 1.
class StoredLayout final : public ModelLayout {
 public:
  // Throws Error(kModel) when nothing is left to serve or --ignore-tensor matches nothing.
  // `unchecked`: why there are no rules that would say whether the checkpoint is complete.
  StoredLayout(const Checkpoint& checkpoint, const ModelSpec& spec, const LayoutRequest& request,
               std::string unchecked);

  CopyProgram program(const RankCoords& rank) const override;
  LayoutNotes notes() const override;
  ShareSize share(const RankCoords& rank) const override;
  int share_id(const RankCoords&) const noexcept override { return 0; }
  std::vector<RankReads> node_reads(std::span<const RankCoords> node,
                                    std::uint64_t least_bytes) const override;

 private:
  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  std::optional<DType> dtype_;
  std::vector<std::uint32_t> served_;
  std::vector<LeftAlone> left_alone_;
  std::string unchecked_;
};

}  // namespace preload
