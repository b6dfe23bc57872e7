// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "model/layout.hpp"
#include "plan/key.hpp"

namespace preload {

// What a manifest's JSON says of its shard: enough to make the same program again from the
// checkpoint (`verify --against`) and for an engine to check that it fits.
struct ShardDescription {
  std::string model;      // as the user called it
  std::string directory;  // where it was read
  std::string hf_overrides;
  LayoutRequest request;
  int layout_version = 1;
  Role role = Role::kTarget;
  ParallelSizes sizes;
  RankCoords rank;
  std::string job;
  std::string key;
  KeyFields fields;
  std::string checkpoint_id;
  std::string attributes_json = "{}";
  friend bool operator==(const ShardDescription&, const ShardDescription&) = default;
};
std::string to_json(const ShardDescription& shard);
ShardDescription shard_from_json(std::string_view text);  // throws Error(kProtocol)

}  // namespace preload
