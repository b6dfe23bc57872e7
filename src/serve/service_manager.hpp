// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>

namespace preload {

// The service manager that started this process and wants to hear of it, as sd_notify(3) says: a
// datagram to the socket that $NOTIFY_SOCKET names, a path or with a leading '@' an abstract one.
// Where there is none, nothing is said. What cannot be sent is dropped: a daemon does not wait for
// its manager.
class ServiceManager {
 public:
  ServiceManager();  // from the environment

  void ready(std::string_view status);   // READY=1 and STATUS=
  void status(std::string_view status);  // a line for `systemctl status`
  void stopping();                       // STOPPING=1

  // With $WATCHDOG_USEC of this process: WATCHDOG=1 twice in that time for as long as `alive`,
  // called on a thread of its own, says so. Until destruction.
  void watch(std::function<bool()> alive);

 private:
  void send(std::string_view message) const noexcept;

  std::string socket_;
  std::optional<std::chrono::microseconds> watchdog_;
  std::jthread thread_;
};

}  // namespace preload
