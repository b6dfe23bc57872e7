// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "doctor/check.hpp"

namespace preload::doctor {

// Who looked: with a launcher every rank does.
struct Examined {
  std::string host;
  int rank = 0;
  bool brief = false;  // only what is not right
};

// A line a check, what is not right with its remedy below.
std::string table(const Examined& who, const Checks& checks);
// {"host", "rank", "worst", "checks": [{"name", "grade", "text", "remedy"}]}, one line.
std::string json(const Examined& who, const Checks& checks);

Grade worst(const Checks& checks) noexcept;
// 0 without a fail, else what `serve` would end with because of the first.
int exit_status(const Checks& checks) noexcept;

}  // namespace preload::doctor
