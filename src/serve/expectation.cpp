// SPDX-License-Identifier: Apache-2.0
#include "serve/expectation.hpp"

#include <fmt/format.h>

namespace preload {

std::map<std::string, wire::FieldMismatch> find_mismatches(const wire::Expectation& expect,
                                                           const Residency& residency) {
  std::map<std::string, wire::FieldMismatch> mismatches;
  if (expect.key && *expect.key != residency.key) mismatches["key"] = {*expect.key, residency.key};
  if (expect.checkpoint && *expect.checkpoint != residency.checkpoint)
    mismatches["checkpoint"] = {*expect.checkpoint, residency.checkpoint};
  for (const auto& [name, expected] : expect.fields) {
    const auto served = residency.fields.find(name);
    if (served == residency.fields.end()) {
      mismatches[name] = {expected, std::nullopt};
    } else if (served->second != expected) {
      mismatches[name] = {expected, served->second};
    }
  }
  return mismatches;
}

std::string mismatch_text(const std::map<std::string, wire::FieldMismatch>& mismatches) {
  std::string text;
  for (const auto& [name, mismatch] : mismatches)
    text += fmt::format("{}{} is {}, expected {}", text.empty() ? "" : "; ", name,
                        mismatch.served.value_or("not a field of the key"), mismatch.expected);
  return text;
}

}  // namespace preload
