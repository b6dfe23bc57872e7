// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/fd.hpp"
#include "client/locate.hpp"
#include "wire/messages.hpp"

namespace preload::client {

// The daemon failed while loading; the text is its own. Exit status and wire code are those of a
// daemon that is not there.
class DaemonFailed : public Error {
 public:
  explicit DaemonFailed(std::string text) : Error(Errc::kUnavailable, std::move(text)) {}
};

struct ConnectOptions {
  Wanted wanted;
  wire::ClientIdentity identity;
  int connect_timeout_ms = 5000;  // one connect, one exchange
  int wait_timeout_ms = 0;        // for a daemon that loads or is not there yet
};

struct Connection {
  Fd socket;
  Endpoint endpoint;
  wire::HelloReply hello;
};

// Connects and says hello to a daemon that is past loading. While one loads (held lock, `.state`)
// it waits; a tombstone counts once 3 s brought no new `.state` under a held lock. Throws
// Error(kUnavailable), Error(kTimeout) when a wait was asked for and ran out, or DaemonFailed; the
// text lists directory and names tried.
Connection connect_daemon(const ConnectOptions& options);

}  // namespace preload::client
