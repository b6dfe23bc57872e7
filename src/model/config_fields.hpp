// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace preload {

// One field of config.json. What has none of these types is only shown.
struct ConfigField {
  std::variant<std::monostate, bool, std::int64_t, std::string, std::vector<std::int64_t>> value;
  std::string shown;  // as JSON, for messages
  friend bool operator==(const ConfigField&, const ConfigField&) = default;
};

// The config's fields by name, null ones left out. Asking for one of another type throws
// Error(kModel) naming the field, or counts it as absent when `strict` is false: where no rule
// needs it. Absent fields are 0, false or empty.
class ConfigFields {
 public:
  ConfigFields() = default;
  ConfigFields(std::map<std::string, ConfigField, std::less<>> fields, bool strict)
      : fields_(std::move(fields)), strict_(strict) {}

  bool has(std::string_view name) const { return fields_.contains(name); }
  std::int64_t number(std::string_view name) const;  // 0 to a milliard
  bool flag(std::string_view name) const;
  std::string text(std::string_view name) const;
  std::vector<std::int64_t> numbers(std::string_view name) const;
  // The same, naming what the text may be.
  [[noreturn]] void refuse(std::string_view name, std::string_view wanted) const;
  bool strict() const noexcept { return strict_; }

  friend bool operator==(const ConfigFields&, const ConfigFields&) = default;

 private:
  template <class Value>
  const Value* find(std::string_view name, std::string_view wanted) const;

  std::map<std::string, ConfigField, std::less<>> fields_;
  bool strict_ = true;
};

}  // namespace preload
