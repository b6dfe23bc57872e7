// SPDX-License-Identifier: Apache-2.0
#include "doctor/variables.hpp"

#include <utility>

#include "base/environment.hpp"

namespace preload::doctor {

Variables Variables::of(Values values) {
  Variables variables;
  variables.values_ = std::move(values);
  return variables;
}

Variables Variables::of_this_process() { return of(environment_variables()); }

}  // namespace preload::doctor
