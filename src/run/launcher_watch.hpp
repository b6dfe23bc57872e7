// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <stop_token>
#include <thread>

#include "comm/launcher.hpp"

namespace preload::run {

// A launcher that is killed tells its ranks nothing, and after MPI has ended nobody else does.
// Calls `on_gone`, once, when the process that started this one has ended; never where there is no
// launcher. Until its destruction.
class LauncherWatch {
 public:
  LauncherWatch(const Launcher& launcher, std::function<void()> on_gone);

 private:
  std::jthread thread_;
};

}  // namespace preload::run
