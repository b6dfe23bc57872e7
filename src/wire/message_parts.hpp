// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to src/wire: the pieces that several messages share.

#include "wire/json_object.hpp"
#include "wire/messages.hpp"

namespace preload::wire {

DaemonState state_member(const JsonObject& object, const char* name);
nlohmann::json client_json(const ClientIdentity& client);
ClientIdentity client_member(const JsonObject& object, const char* name);

}  // namespace preload::wire
