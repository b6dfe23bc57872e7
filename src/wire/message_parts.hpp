// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to .cpp files: the pieces that several messages share.

#include "wire/artifact_messages.hpp"
#include "wire/json_object.hpp"
#include "wire/messages.hpp"

namespace preload::wire {

DaemonState state_member(const JsonObject& object, const char* name);
nlohmann::json client_json(const ClientIdentity& client);
ClientIdentity client_member(const JsonObject& object, const char* name);
nlohmann::json lease_json(const LeaseStatus& lease);
LeaseStatus lease_from(const nlohmann::json& value, std::string_view what);
nlohmann::json leases_json(const std::vector<LeaseStatus>& leases);

nlohmann::json artifact_json(const PutArtifactRequest& artifact);
PutArtifactRequest artifact_from(const nlohmann::json& value, std::string_view what);

nlohmann::json slab_json(const SlabInfo& slab);
SlabInfo slab_from(const nlohmann::json& value, std::string_view what);

}  // namespace preload::wire
