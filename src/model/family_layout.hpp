// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "model/attributes.hpp"
#include "model/family.hpp"
#include "model/layout_rules.hpp"
#include "model/model_layout.hpp"
#include "model/node_reads.hpp"
#include "model/part_shard.hpp"
#include "model/weight_format.hpp"

namespace preload {

// The layout of a family with rules: `vllm` takes each rule as one tensor, `hf` each stored tensor
// that rules take something of, `transformers` what its model makes of it.
class FamilyLayout final : public ModelLayout {
 public:
  FamilyLayout(const Family& family, const Checkpoint& checkpoint, const ModelSpec& spec,
               const LayoutRequest& request, const ParallelSizes& sizes,
               std::optional<WeightFormat> format);

  CopyProgram program(const RankCoords& rank) const override;
  ShareSize share(const RankCoords& rank) const override;
  std::vector<RankReads> node_reads(std::span<const RankCoords> node,
                                    std::uint64_t least_bytes) const override;
  int share_id(const RankCoords& rank) const noexcept override;
  LayoutNotes notes() const override;

 private:
  // The rules of one scope, and of one kind of layer.
  struct Section {
    std::vector<LayoutRule> rules;
    std::size_t sources = 0;  // source tensors of an instance: one a part, or one a part and expert
  };
  // A section with source tensors: what lies before the layers, a layer, what lies behind them.
  struct Instance {
    const Section* section = nullptr;
    std::size_t first = 0;   // of sources_
    std::uint32_t kind = 0;  // instances of one kind have the same rules and stored types
  };
  class Matcher;
  class Builder;
  class Reads;

  bool tied(const LayoutRule& rule) const noexcept;           // here it is another name
  bool is_tie_target(const LayoutRule& rule) const noexcept;  // another rule is tied to it
  bool has_first(const RankCoords& rank, const LayoutRule& rule) const noexcept;
  bool has_last(const RankCoords& rank) const noexcept;
  bool has_experts(std::int64_t layer) const;
  Interval layers_of(const RankCoords& rank) const noexcept;
  RankShare rank_share(const RankCoords& rank) const;
  std::optional<DraftOwns> draft_owns() const;
  std::size_t kind_of(std::int64_t layer) const;     // of the two kinds that a model may have
  std::string layer_name(std::int64_t layer) const;  // "model.layers.7.", as stored
  std::string target_layer_name(std::int64_t layer) const;
  std::size_t sources_of(const LayoutPart& part) const noexcept;
  DType target_dtype(const LayoutRule& rule, DType stored) const noexcept;
  DType stored_dtype(std::size_t source) const noexcept;
  ShareSize share_of(const LayoutRule& rule, std::size_t first, const RankShare& rank) const;
  // Calls visit(rule, first) for the rules of an instance that have source tensors, with the place
  // of the first of these.
  template <class Visit>
  void each_rule(const Instance& instance, const Visit& visit) const {
    std::size_t first = instance.first;
    for (const LayoutRule& rule : instance.section->rules) {
      if (tied(rule)) continue;
      visit(rule, first);
      for (const LayoutPart& part : rule.parts) first += sources_of(part);
    }
  }

  const Family& family_;
  const Checkpoint& checkpoint_;
  const ModelSpec& spec_;
  const LayoutRequest request_;
  const ParallelSizes sizes_;
  const Interval numbers_;  // of all layers: where they begin, and how many
  const RuleStyle style_;
  const std::optional<DType> dtype_;          // of all floats; unset: as stored
  const std::optional<WeightFormat> format_;  // of quantised weights
  NamePrefixes stored_names_;                 // as the checkpoint has it
  Section first_section_;
  // Of layers with and without experts, with and without quantised weights: as they come. Instances
  // point to them.
  std::deque<Section> layer_sections_;
  Section last_section_;
  std::vector<std::uint32_t> sources_;
  Instance first_;
  std::vector<Instance> layers_;
  Instance last_;
  std::vector<std::size_t> kinds_;  // of layers: one of each kind
  std::vector<LeftAlone> left_alone_;
  std::vector<std::string_view> others_;  // prefixes of what is served whole beside the rules
};

}  // namespace preload
