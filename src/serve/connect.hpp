// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "serve/socket_dir.hpp"

namespace preload {

// The client's way in, and the daemon's way to be found. Both go through the directory's
// descriptor, and neither trusts what lies under the name.

// Replaces a stale socket of ours, binds with mode 0600 and listens; non-blocking. Throws
// Error(kUsage) with path, owner and remedy when something else is in the way, Error(kBusy) when
// somebody listens there, unless that is the predecessor that hangs. Those whom the directory
// allows can connect.
enum class Listeners : std::uint8_t { kRefuse, kReplace };
Fd listen_at(const SocketDir& directory, const std::string& socket_name,
             Listeners present = Listeners::kRefuse);
// The pid of who listens at `socket_name` (0: not to be told), if anybody still does after a
// second: a process that is killed gives up its lock an instant before its socket.
std::optional<int> listener_pid(const SocketDir& directory, const std::string& socket_name);

// A non-blocking connection to the daemon at `socket_name`. Throws Error(kUnavailable) when nobody
// listens there, Error(kProtocol) with path, owner and remedy when what lies there is not a socket
// of somebody whom the directory trusts, or the daemon is run by somebody else.
Fd connect_to(const SocketDir& directory, const std::string& socket_name, int timeout_ms);

}  // namespace preload
