// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/socket_dir.hpp"
#include "wire/messages.hpp"
#include "wire/residency_messages.hpp"

namespace preload {

// What a daemon's own file says of it.
wire::DaemonStatus status_of(const StateFile& file);

// What stands behind one name of a socket directory.
enum class DaemonCondition {
  kAnswering,  // its socket does: `live` is its word
  kComing,     // the lock is held and nobody answers yet: it loads
  kFailed,     // it left a tombstone
  kDead,       // the lock is free and nobody said why
};

// One daemon as seen from outside. Only a socket that answers is believed to be ready.
struct DaemonView {
  std::string stem;
  bool succeeds = false;  // it is to replace the daemon of this name, and has a lock beside it
  DaemonCondition condition = DaemonCondition::kDead;
  std::optional<StateFile> file;           // of this boot and, under a held lock, of its holder
  std::optional<wire::DaemonStatus> live;  // set for kAnswering
  // What the keeper says of the weights, when their daemon is gone: they can be attached to.
  std::optional<wire::DaemonStatus> kept;

  // Whatever is known, in one form.
  wire::DaemonStatus status() const;
  std::string name() const;  // "host:0 slot a draft"
  std::string lock_name() const { return stem + (succeeds ? ".next.lock" : ".lock"); }
};

// The keeper of `directory`, when one answers.
std::optional<wire::KeeperStatus> view_keeper(const SocketDir& directory, int timeout_ms = 1000);

// All daemons of `directory`, by name, and what its keeper has of those that are gone; a daemon
// that does not answer within `timeout_ms` counts as not answering. Throws as connect_to and
// lock_is_held do on what is not to be trusted.
std::vector<DaemonView> view_directory(const SocketDir& directory, int timeout_ms = 1000);

// Those that load to replace a daemon of `directory` (kComing), and tombstones of such that failed.
std::vector<DaemonView> view_successors(const SocketDir& directory);

// Which daemons are meant; unset members leave it open.
struct DaemonFilter {
  std::optional<std::string> device;
  std::optional<std::string> slot;
  std::optional<Role> role;
  bool admits(const DaemonView& view) const;
};
std::vector<DaemonView> view_directory(const SocketDir& directory, const DaemonFilter& filter,
                                       int timeout_ms = 1000);

}  // namespace preload
