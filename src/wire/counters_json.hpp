// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to .cpp files: how a daemon's counters are written in its status.

#include "wire/counters.hpp"
#include "wire/json_object.hpp"

namespace preload::wire {

nlohmann::json counters_json(const Counters& counters);
// All zero where the member is absent: an older daemon counts nothing.
Counters counters_member(const JsonObject& object, const char* name);

}  // namespace preload::wire
