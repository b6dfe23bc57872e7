// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "checkpoint/problems.hpp"
#include "model/family_matcher.hpp"

// Whether what is quantised in the checkpoint is what its config calls quantised: the engine makes
// its parameters by the config.
namespace preload {
namespace {

constexpr std::string_view kWeight = ".weight";

// A weight that every engine quantises unless it is told not to: one that ranks share. Of the
// others some are kept as floats by their models, as routers are.
bool is_quantised_by_default(const LayoutPart& part) {
  return part.split != Split::kReplicated && part.split != Split::kVocabRows && !part.one_axis() &&
         std::string_view(part.stored).ends_with(kWeight);
}

}  // namespace

void FamilyLayout::Matcher::check_formats(const std::vector<LayoutRule>& rules,
                                          const std::vector<bool>& quantised,
                                          const std::string& prefix) {
  if (layout_.style_ != RuleStyle::kEngine) return;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    for (const LayoutPart& part : rules[i].parts) {
      if (!std::string_view(part.stored).ends_with(kWeight)) continue;
      std::string name = prefix + part.stored;
      if (const std::size_t star = name.find('*'); star != std::string::npos) name[star] = '0';
      const std::string module = name.substr(0, name.size() - kWeight.size());
      if (quantised[i]) {
        if (float_modules_.names(module)) listed_.push_back(std::move(name));
        continue;
      }
      const auto index = is_quantised_by_default(part) ? find(name) : std::nullopt;
      const bool is_float = index && is_wide_float(layout_.checkpoint_.tensors[*index].dtype);
      if (is_float && !float_modules_.may_name(module)) floats_.push_back(std::move(name));
    }
  }
}

void FamilyLayout::Matcher::explain_formats() {
  if (!floats_.empty()) {
    problems_.push_back(fmt::format(
        "stored as floats without a scale, though quantization_config calls the model {}: {}; "
        "complete the checkpoint, or name the modules in quantization_config's \"{}\" with "
        "--hf-overrides",
        layout_.spec_.quantization, quote_list(floats_, kListed), float_modules_.list()));
  }
  if (!listed_.empty()) {
    problems_.push_back(fmt::format(
        "stored quantised, though quantization_config's \"{}\" leaves their modules as floats: {}; "
        "correct that list with --hf-overrides, or take the checkpoint that it belongs to",
        float_modules_.list(), quote_list(listed_, kListed)));
  }
}

}  // namespace preload
