// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>
#include <thread>

#include "base/fd.hpp"

namespace preload::run {

// SIGINT, SIGTERM and SIGHUP as calls on a thread of their own; SIGUSR1 stands for SIGTERM and
// SIGUSR2 for SIGINT. They are blocked in the thread that constructs this, and so in all that it
// starts later: build it first. `on_stop` is called instead when the first is a stop that `preload
// stop` asks for. A signal more than a second after the first ends the process at
// once with 128 + its number. SIGPIPE is ignored.
class SignalWatch {
 public:
  explicit SignalWatch(std::function<void(int)> on_first, std::function<void()> on_stop = {});
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  void run();

  std::function<void(int)> on_first_;
  std::function<void()> on_stop_;
  Fd signals_, stop_;
  std::thread thread_;
};

std::string_view signal_name(int signal) noexcept;  // "SIGTERM"

}  // namespace preload::run
