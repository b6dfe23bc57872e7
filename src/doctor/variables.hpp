// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace preload::doctor {

// The environment as a value, so that checks of it can be tried on any.
class Variables {
 public:
  Variables() = default;
  using Values = std::map<std::string, std::string, std::less<>>;
  static Variables of(Values values);
  static Variables of_this_process();

  bool has(std::string_view name) const { return values_.contains(name); }
  std::string text(std::string_view name) const {  // empty when it is not set
    const auto at = values_.find(name);
    return at == values_.end() ? std::string() : at->second;
  }

 private:
  Values values_;
};

}  // namespace preload::doctor
