// SPDX-License-Identifier: Apache-2.0
#include "model/float_modules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "model/left_alone.hpp"

namespace preload {
namespace {

using nlohmann::json;

// vLLM 0.32: fp8.py, compressed_tensors.py, modelopt.py, each the first that the config has.
std::vector<const char*> list_names(const std::string& method) {
  if (method == "fp8") return {"ignored_layers", "modules_to_not_convert"};
  if (method == "compressed-tensors") return {"ignore"};
  if (method == "modelopt") return {"exclude_modules", "ignore"};
  return {};
}

std::regex pattern_of(const std::string& text, std::string_view list) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    throw Error(Errc::kModel, fmt::format("quantization_config: \"{}\" has the pattern '{}': {}",
                                          list, text, error.what()));
  }
}

}  // namespace

FloatModules::FloatModules(const ModelSpec& spec) {
  const std::vector<const char*> lists = list_names(spec.quantization);
  if (lists.empty()) return;
  list_ = lists.back();
  json config = json::parse(spec.quantization_json, nullptr, false);
  if (config.is_object() && config.contains("quantization")) config = config["quantization"];
  if (!config.is_object()) return;
  for (const char* name : lists) {
    const auto at = config.find(name);
    if (at == config.end() || at->is_null()) continue;
    const bool texts = at->is_array() && std::ranges::all_of(*at, [](const json& entry) {
                         return entry.is_string();
                       });
    if (!texts) {
      throw Error(Errc::kModel,
                  fmt::format("quantization_config: \"{}\" must be a list of names, not {}", name,
                              at->dump()));
    }
    list_ = name;
    for (const json& entry : *at) {
      const auto text = entry.get<std::string>();
      if (text.starts_with("re:")) {
        patterns_.push_back(pattern_of(text.substr(3), list_));
      } else if (!text.empty()) {
        entries_.push_back(text);
      }
    }
    return;
  }
}

bool FloatModules::names(std::string_view module) const {
  const std::string name(module);
  // Python's re.match: from the beginning, not to the end.
  return std::ranges::any_of(entries_,
                             [&](const std::string& entry) {
                               return entry == name || (entry.find('*') != std::string::npos &&
                                                        matches_glob(entry, name));
                             }) ||
         std::ranges::any_of(patterns_, [&](const std::regex& pattern) {
           return std::regex_search(name, pattern, std::regex_constants::match_continuous);
         });
}

bool FloatModules::may_name(std::string_view module) const {
  return names(module) || std::ranges::any_of(entries_, [&](const std::string& entry) {
           return module.find(entry) != std::string_view::npos || entry.starts_with(module);
         });
}

}  // namespace preload
