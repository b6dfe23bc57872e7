// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace preload {

// Bounds a call that cannot be interrupted (MPI_Init, MPI_Finalize): when it is still alive after
// `timeout`, the text is logged and the process ends with `status`. The only place besides main
// that ends the process, because nothing above a hung library call can.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds timeout, int status, std::string text);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace preload
