// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace preload::doctor {

enum class Grade : std::uint8_t { kOk, kWarn, kFail };

// One thing that was looked at. What is not right comes with what to do about it.
struct Check {
  std::string name;  // "CPU binding"
  Grade grade = Grade::kOk;
  std::string text;
  std::string remedy;        // empty when it is right
  Errc code = Errc::kUsage;  // what `serve` would end with, of a fail
  friend bool operator==(const Check&, const Check&) = default;
};
using Checks = std::vector<Check>;

inline Check ok(std::string name, std::string text) {
  return {std::move(name), Grade::kOk, std::move(text), {}, Errc::kUsage};
}
inline Check warn(std::string name, std::string text, std::string remedy) {
  return {std::move(name), Grade::kWarn, std::move(text), std::move(remedy), Errc::kUsage};
}
inline Check fail(std::string name, Errc code, std::string text, std::string remedy) {
  return {std::move(name), Grade::kFail, std::move(text), std::move(remedy), code};
}

}  // namespace preload::doctor
