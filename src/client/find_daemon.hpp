// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "client/connect.hpp"
#include "preload/client.h"

namespace preload::client {

// What one look at a daemon tells, with the texts that preload_daemon points to.
struct FoundDaemon {
  preload_daemon_state state = PRELOAD_DAEMON_ABSENT;
  wire::DaemonStatus status;  // as far as it is known
  std::string text;
  int cuda_ordinal = -1;

  preload_daemon describe() const noexcept;
};

// Throws as look_for_daemon does; a daemon that ends meanwhile is absent.
FoundDaemon find_daemon(const ConnectOptions& options);

}  // namespace preload::client
