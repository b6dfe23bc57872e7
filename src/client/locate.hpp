// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "serve/socket_dir.hpp"

namespace preload::client {

// What a user calls a daemon. An unset device means the only one there; without a socket path an
// unset slot means none and an unset role the target.
struct Wanted {
  SocketDirChoice socket_dir;
  std::string socket_path;  // this very socket: the members below are checks then
  std::optional<std::string> device;
  std::optional<std::string> slot;
  std::optional<Role> role;
};

// "GPU-…", "MIG-…", a CUDA index or "host:N" as sockets are named after it: lower case, an index
// turned into the UUID that the CUDA driver gives. Throws Error(kUsage) on anything else and
// Error(kDevice) for an index without such a GPU.
std::string device_from_text(std::string_view text);

// Finds the one daemon of that role and slot, by the `.state` files under held locks; tombstones
// and remains of dead daemons only where no lock is held. Throws Error(kUnavailable) listing what
// is there when nothing fits, Error(kUsage) when several do.
Endpoint only_endpoint(const SocketDir& directory, const std::string& slot, Role role);

std::string describe(const Endpoint& endpoint);  // "host:0, slot a, role draft"

}  // namespace preload::client
