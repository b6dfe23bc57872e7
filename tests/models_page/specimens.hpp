// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace preload::test {

// A checkpoint of tests/fixtures that stands for a line of docs/models.md.
struct Specimen {
  std::string_view model;  // as people call it
  std::string_view fixture;
  std::string_view moe_backend = "auto";  // that the engine is told to use
};

std::span<const Specimen> family_specimens() noexcept;
std::span<const Specimen> quantised_specimens() noexcept;

}  // namespace preload::test
