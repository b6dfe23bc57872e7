// SPDX-License-Identifier: Apache-2.0
#include "base/environment.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace preload {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown-host";
}

}  // namespace preload
