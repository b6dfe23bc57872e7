// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to .cpp files: the one form of progress in JSON, in `.state` files and in messages.

#include <string>

#include "wire/json_object.hpp"
#include "wire/progress.hpp"

namespace preload::wire {

nlohmann::json progress_json(const Progress& progress);
// Throws as JsonObject does; `what` names the member in messages.
Progress progress_member(const JsonObject& object, const char* name, std::string what);

}  // namespace preload::wire
