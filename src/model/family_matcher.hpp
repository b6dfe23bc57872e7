// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <tuple>

#include "model/family_layout.hpp"
#include "model/float_modules.hpp"

namespace preload {

// Matches a family's rules with the checkpoint's tensors and gathers all that does not fit.
class FamilyLayout::Matcher {
 public:
  explicit Matcher(FamilyLayout& layout);
  // Fills the layout's sections, instances and left_alone, or throws Error(kModel) with every
  // problem.
  void run();

 private:
  void check_numbers();
  void check_parallelism();
  void check_engine_experts();
  void check_mxfp4();
  void choose_names();
  void select_rules();
  void adapt_to_transformers(std::vector<LayoutRule>& rules) const;
  void keep_what_is_stored_twice(std::vector<LayoutRule>& rules) const;
  void count_sources(Section& section);
  void check_extents(const std::vector<LayoutRule>& rules);
  const Section& layer_section(std::size_t layer, const std::string& prefix);
  std::vector<std::string> take_kv_scales(const std::string& prefix,
                                          std::optional<WeightFormat>& format,
                                          std::vector<LayoutRule>& rules);
  void check_formats(const std::vector<LayoutRule>& rules, const std::vector<bool>& quantised,
                     const std::string& prefix);
  void explain_formats();
  void leave_input_scales_alone(const LayoutRule& rule, const std::string& prefix);
  Instance match(const Section& section, const std::string& prefix);
  void match_source(const LayoutRule& rule, const LayoutPart& part);
  void check_tensor(const SourceTensor& tensor, const LayoutRule& rule, const LayoutPart& part);
  void leave_tied_alone();
  void leave_draft_layers_alone();
  void leave_target_alone();
  // The stored tensor of what the rules call `name`, and what it would be called.
  std::optional<std::uint32_t> find(const std::string& name) const;
  std::string stored_name(const std::string& name, const StoredName& names) const;
  void drop_what_is_not_stored(std::vector<LayoutRule>& rules, const std::string& prefix) const;
  void leave_unused_alone();
  void serve_others();
  void sort_out();
  void explain_missing();
  void throw_if_any() const;

  static constexpr std::size_t kListed = 64;  // names in one line of a refusal

  FamilyLayout& layout_;
  TensorNames names_;
  std::array<std::vector<LayoutRule>, 2> layer_rules_;  // by kind_of
  // By a layer's kind, which of its rules' weights are quantised and which scales of its KV cache
  // are stored.
  std::map<std::tuple<std::size_t, std::vector<bool>, std::vector<std::string>>, const Section*>
      known_;
  std::vector<bool> consumed_;
  std::vector<std::string> reasons_;
  std::vector<std::string> problems_;  // one line each
  std::vector<std::string> missing_;
  std::vector<std::string> shapes_;
  const FloatModules float_modules_;
  std::vector<std::string> floats_;  // stored as floats, quantised by the config
  std::vector<std::string> listed_;  // the other way round
  std::string name_;                 // reused: a name is made for every tensor
};

}  // namespace preload
