// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/family_layout.hpp"

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
  void select_rules();
  void check_extents(const Section& section);
  Instance match(const Section& section, const std::string& prefix);
  void match_source(const LayoutPart& part);
  void check_tensor(const SourceTensor& tensor, const LayoutPart& part);
  void leave_tied_alone();
  void leave_draft_layers_alone();
  void leave_target_alone();
  // The stored tensor of what the rules call `name`, and what it would be called.
  std::optional<std::uint32_t> find(const std::string& name) const;
  std::string stored_name(const std::string& name, const StoredName& names) const;
  void drop_what_is_not_stored(Section& section, const std::string& prefix) const;
  void sort_out();
  void explain_missing();
  void throw_if_any() const;

  FamilyLayout& layout_;
  TensorNames names_;
  std::vector<bool> consumed_;
  std::vector<std::string> reasons_;
  std::vector<std::string> problems_;  // one line each
  std::vector<std::string> missing_;
  std::vector<std::string> shapes_;
  std::string name_;  // reused: a name is made for every tensor
};

}  // namespace preload
