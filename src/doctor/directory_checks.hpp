// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/check.hpp"
#include "serve/directory_view.hpp"

namespace preload::doctor {

// The socket directory: whose it is, who may write it, what file system it lies on. `given` as in
// SocketDir::open; it is not made.
Check check_directory(const std::string& given);

// What lies in it: daemons, failures and deaths that are left, and the keeper.
Checks check_daemons(const std::string& given);
Check judge_daemons(const std::vector<DaemonView>& views);
Check judge_keeper(bool running, bool lock_held);

}  // namespace preload::doctor
