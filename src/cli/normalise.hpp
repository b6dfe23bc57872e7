// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace preload::cli {

// --hf-overrides.rope_scaling.factor 8.0
struct DottedKey {
  std::string option;    // "hf-overrides"
  std::string path;      // "rope_scaling.factor"
  nlohmann::json value;  // JSON where it parses as such, text otherwise
};

// A command's arguments as cxxopts expects them: long names with '-', one spelling an option,
// each value an argument of its own, dotted keys taken out.
struct Normalised {
  std::vector<std::string> arguments;
  std::vector<DottedKey> dotted;
};

// Throws Error(kUsage) for an option that the table does not give `command`, with a suggestion, and
// for one whose value is missing.
Normalised normalise(std::string_view command, const std::vector<std::string>& arguments);

}  // namespace preload::cli
