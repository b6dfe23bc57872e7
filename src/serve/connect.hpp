// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "serve/socket_dir.hpp"

namespace preload {

// The client's way in, and the daemon's way to be found. Both go through the directory's
// descriptor, and neither trusts what lies under the name.

// Replaces a stale socket of ours, binds with mode 0600 and listens; non-blocking. Throws
// Error(kUsage) with path, owner and remedy when something else is in the way.
Fd listen_at(const SocketDir& directory, const std::string& socket_name);

// A non-blocking connection to the daemon at `socket_name`. Throws Error(kUnavailable) when nobody
// listens there, Error(kProtocol) with path, owner and remedy when what lies there is not a socket
// of ours or root's or the daemon is run by somebody else (`allow_uids` are trusted too).
Fd connect_to(const SocketDir& directory, const std::string& socket_name, int timeout_ms,
              const std::vector<unsigned>& allow_uids = {});

}  // namespace preload
