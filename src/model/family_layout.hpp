// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/family.hpp"
#include "model/model_layout.hpp"
#include "model/node_reads.hpp"

namespace preload {

// The layout of a family with rules: `vllm` takes each rule as one tensor, `hf` each of its parts.
class FamilyLayout final : public ModelLayout {
 public:
  FamilyLayout(const Family& family, const Checkpoint& checkpoint, const ModelSpec& spec,
               const LayoutRequest& request, const ParallelSizes& sizes);

  CopyProgram program(const RankCoords& rank) const override;
  ShareSize share(const RankCoords& rank) const override;
  std::vector<RankReads> node_reads(std::span<const RankCoords> node,
                                    std::uint64_t least_bytes) const override;

 private:
  // The rules of one scope that this config has, and the source tensors of their parts: for layers
  // those of layer 0, of layer 1, and so on.
  struct Section {
    std::vector<const Rule*> rules;
    std::vector<std::uint32_t> sources;
    std::size_t parts = 0;
  };
  class Matcher;
  class Builder;

  bool tied(const Rule& rule) const noexcept;           // here it is another name
  bool is_tie_target(const Rule& rule) const noexcept;  // another rule is tied to it
  DType target_dtype(DType stored) const noexcept;
  ShareSize share_of(const Rule& rule, const std::uint32_t* sources, int tp_rank) const;
  // The ranks `members` of `node` need the rule.
  void add_reads(const Rule& rule, const std::uint32_t* sources,
                 std::span<const std::uint32_t> members, std::span<const RankCoords> node,
                 NodeReadSums& sums) const;

  const Family& family_;
  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  ParallelSizes sizes_;
  Role role_;
  bool fused_;                  // the engine's tensors, not the stored ones
  std::optional<DType> dtype_;  // of all floats; unset: as stored
  Section first_;
  Section layer_;
  Section last_;
  std::vector<LeftAlone> left_alone_;
  std::vector<ShareSize> layer_sums_;  // of layers [0, i); the same on every tp rank
};

}  // namespace preload
