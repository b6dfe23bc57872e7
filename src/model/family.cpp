// SPDX-License-Identifier: Apache-2.0
#include "model/family.hpp"

#include <algorithm>

namespace preload {

const Family* find_family(std::string_view architecture) noexcept {
  const auto families = all_families();
  const auto at = std::ranges::find(families, architecture, &Family::architecture);
  return at == families.end() ? nullptr : *at;
}

}  // namespace preload
