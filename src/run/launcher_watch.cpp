// SPDX-License-Identifier: Apache-2.0
#include "run/launcher_watch.hpp"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace preload::run {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(500);

}  // namespace

LauncherWatch::LauncherWatch(const Launcher& launcher, std::function<void()> on_gone) {
  const pid_t parent = getppid();
  // 1: started by init itself, or gone already, which nobody can tell apart.
  if (launcher.kind == Launcher::Kind::kNone || parent == 1) return;
  thread_ = std::jthread([parent, on_gone = std::move(on_gone)](const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    while (getppid() == parent) {
      if (changed.wait_for(lock, stop, kPeriod, [&] { return stop.stop_requested(); })) return;
    }
    on_gone();
  });
}

}  // namespace preload::run
