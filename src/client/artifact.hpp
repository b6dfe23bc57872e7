// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "base/fd.hpp"
#include "client/connect.hpp"

namespace preload::client {

struct Artifact {
  Mapping content;
  std::string metadata;
};

// Leaves `content` with the daemon under `key`. Throws Error(kUsage) for a key, a size or metadata
// past what daemons take (wire/artifact_messages.hpp), and as connect_daemon does.
void put_artifact(const ConnectOptions& options, const std::string& key,
                  const std::string& metadata, std::span<const std::byte> content);
// Nothing when the daemon has none of that key.
std::optional<Artifact> get_artifact(const ConnectOptions& options, const std::string& key);

}  // namespace preload::client
