// SPDX-License-Identifier: Apache-2.0
#include "model/config_fields.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace preload {

namespace {

// Bounded so that products of a few of them stay within 64 bits.
constexpr std::int64_t kMost = 1'000'000'000;

}  // namespace

void ConfigFields::refuse(std::string_view name, std::string_view wanted) const {
  const auto at = fields_.find(name);
  throw Error(Errc::kModel, fmt::format("config.json: \"{}\" must be {}, not {}", name, wanted,
                                        at == fields_.end() ? "absent" : at->second.shown));
}

template <class Value>
const Value* ConfigFields::find(std::string_view name, std::string_view wanted) const {
  const auto at = fields_.find(name);
  if (at == fields_.end()) return nullptr;
  const Value* value = std::get_if<Value>(&at->second.value);
  if (value == nullptr && strict_) refuse(name, wanted);
  return value;
}

std::int64_t ConfigFields::number(std::string_view name) const {
  constexpr std::string_view kWanted = "a whole number, 0 or more and at most 1000000000";
  const auto* value = find<std::int64_t>(name, kWanted);
  if (value == nullptr) return 0;
  if (*value < 0 || *value > kMost) {
    if (strict_) refuse(name, kWanted);
    return 0;
  }
  return *value;
}

bool ConfigFields::flag(std::string_view name) const {
  const auto* value = find<bool>(name, "true or false");
  return value != nullptr && *value;
}

std::string ConfigFields::text(std::string_view name) const {
  const auto* value = find<std::string>(name, "a text");
  return value == nullptr ? std::string() : *value;
}

std::vector<std::int64_t> ConfigFields::numbers(std::string_view name) const {
  const auto* value = find<std::vector<std::int64_t>>(name, "a list of whole numbers");
  return value == nullptr ? std::vector<std::int64_t>() : *value;
}

}  // namespace preload
