// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "serve/residency.hpp"
#include "wire/messages.hpp"

namespace preload {

// Every respect in which the residency is not what is expected, by name; empty when all holds.
std::map<std::string, wire::FieldMismatch> find_mismatches(const wire::Expectation& expect,
                                                           const Residency& residency);

// "tp_size is 2, expected 4; dtype is BF16, expected F16"
std::string mismatch_text(const std::map<std::string, wire::FieldMismatch>& mismatches);

}  // namespace preload
