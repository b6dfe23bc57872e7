// SPDX-License-Identifier: Apache-2.0
#include "base/environment.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string_view>

namespace preload {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::map<std::string, std::string, std::less<>> environment_variables() {
  std::map<std::string, std::string, std::less<>> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view whole = *entry;
    const std::size_t end = whole.find('=');
    if (end != whole.npos) variables.emplace(whole.substr(0, end), whole.substr(end + 1));
  }
  return variables;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown-host";
}

}  // namespace preload
