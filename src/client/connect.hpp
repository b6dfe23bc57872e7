// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <variant>

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
  // For one of which there is no sign, instead: what is there then has all of wait_timeout_ms.
  std::optional<int> absent_timeout_ms;
};

// A daemon that is past loading.
struct Connection {
  Fd socket;
  wire::HelloReply hello;
};

// What one look at the directory finds besides. `state` is what the daemon wrote, where it did.
struct Loading {
  std::string text;
  std::optional<StateFile> state;
};
struct Tombstone {
  std::string text;
  StateFile state;
};
struct Absent {
  std::string text;
};
using Look = std::variant<Connection, Loading, Tombstone, Absent>;

// One look, without waiting. Throws Error for what waiting does not help.
Look look_for_daemon(const ConnectOptions& options);

// Connects and says hello to a daemon that is past loading. While one loads (held lock, `.state`)
// it waits; a tombstone counts once 3 s brought no new `.state` under a held lock. Throws
// Error(kUnavailable), Error(kTimeout) when a wait was asked for and ran out, or DaemonFailed; the
// text lists directory and names tried.
Connection connect_daemon(const ConnectOptions& options);

}  // namespace preload::client
