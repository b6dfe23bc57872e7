// SPDX-License-Identifier: Apache-2.0
#include "doctor/variables.hpp"

#include <unistd.h>

#include <utility>

namespace preload::doctor {

Variables Variables::of(Values values) {
  Variables variables;
  variables.values_ = std::move(values);
  return variables;
}

Variables Variables::of_this_process() {
  Values values;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view whole = *entry;
    const std::size_t end = whole.find('=');
    if (end != whole.npos) values.emplace(whole.substr(0, end), whole.substr(end + 1));
  }
  return of(std::move(values));
}

}  // namespace preload::doctor
