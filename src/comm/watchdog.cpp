// SPDX-License-Identifier: Apache-2.0
#include "comm/watchdog.hpp"

#include <cstdlib>
#include <utility>

#include "base/log.hpp"

namespace preload {

Watchdog::Watchdog(std::chrono::milliseconds timeout, int status, std::string text)
    : thread_([this, timeout, status, text = std::move(text)] {
        std::unique_lock lock(mutex_);
        if (done_.wait_for(lock, timeout, [this] { return ended_; })) return;
        log::error(text);
        std::_Exit(status);
      }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  done_.notify_all();
  thread_.join();
}

}  // namespace preload
