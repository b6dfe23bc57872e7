// SPDX-License-Identifier: Apache-2.0
#include "artifact/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/hash.hpp"

namespace preload::artifact {

bool is_known(const Environment& environment) {
  return std::ranges::none_of(environment,
                              [](const auto& field) { return field.second == kUnknown; });
}

std::string differences(const Environment& stored, const Environment& here) {
  std::set<std::string> names;
  for (const auto& [name, value] : stored) names.insert(name);
  for (const auto& [name, value] : here) names.insert(name);
  std::vector<std::string> texts;
  const auto value_in = [](const Environment& environment, const std::string& name) {
    const auto at = environment.find(name);
    return at == environment.end() ? std::string(kUnknown) : at->second;
  };
  for (const std::string& name : names) {
    const std::string there = value_in(stored, name);
    const std::string ours = value_in(here, name);
    if (there != ours || ours == kUnknown)
      texts.push_back(fmt::format("{} {} ({} here)", name, there, ours));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string environment_digest(const Environment& environment) {
  return sha256_hex(nlohmann::json(environment).dump());
}

}  // namespace preload::artifact
