// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "model/model_spec.hpp"

namespace preload {

// The modules that a quantization_config leaves as floats: fp8's modules_to_not_convert (or
// ignored_layers), compressed-tensors' ignore, ModelOpt's exclude_modules.
class FloatModules {
 public:
  // A config without such a list names none. Throws Error(kModel) where the list is no list of
  // names.
  explicit FloatModules(const ModelSpec& spec);

  // The module, "model.layers.1.mlp.up_proj", is meant: named in full, or by a pattern.
  bool names(std::string_view module) const;
  // It may be meant: transformers reads fp8's names as parts of names, too.
  bool may_name(std::string_view module) const;
  std::string_view list() const noexcept { return list_; }  // what the config calls it

 private:
  std::string list_;
  std::vector<std::string> entries_;
  std::vector<std::regex> patterns_;
};

}  // namespace preload
