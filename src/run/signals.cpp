// SPDX-License-Identifier: Apache-2.0
#include "run/signals.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/stop_signals.hpp"
#include "serve/stop_request.hpp"

namespace preload::run {
namespace {

// A launcher may pass on what the kernel delivered too: signals this close are one request.
constexpr auto kOneRequest = std::chrono::seconds(1);

// Launchers keep SIGTERM and SIGINT to themselves and end their ranks the hard way, but pass these
// two on as they are.
int meant_signal(int signal) noexcept {
  switch (signal) {
    case SIGUSR1:
      return SIGTERM;
    case SIGUSR2:
      return SIGINT;
  }
  return signal;
}

}  // namespace

SignalWatch::SignalWatch(std::function<void(int)> on_first, std::function<void()> on_stop)
    : on_first_(std::move(on_first)), on_stop_(std::move(on_stop)) {
  sigset_t set = stop_signals();
  for (int signal : {SIGUSR1, SIGUSR2}) sigaddset(&set, signal);
  check_sys(-pthread_sigmask(SIG_BLOCK, &set, nullptr), "blocking signals");
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file size limit then is an error, with a message for all ranks
  signals_ =
      Fd(static_cast<int>(check_sys(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd")));
  stop_ = Fd(static_cast<int>(check_sys(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")));
  thread_ = std::thread([this] { run(); });
}

// The signals stay blocked: one that arrives while the process ends must not change its status.
SignalWatch::~SignalWatch() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void SignalWatch::run() {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> first;
  for (;;) {
    pollfd polled[2] = {{signals_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(polled, 2, -1) < 0) continue;
    if ((polled[1].revents & POLLIN) != 0) return;
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != sizeof info) continue;
    const int signal = meant_signal(static_cast<int>(info.ssi_signo));
    if (!first) {
      first = Clock::now();
      if (on_stop_ && is_stop_request(info)) {
        on_stop_();
      } else {
        on_first_(signal);
      }
    } else if (Clock::now() - *first > kOneRequest) {
      std::_Exit(128 + signal);
    }
  }
}

std::string_view signal_name(int signal) noexcept {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGHUP:
      return "SIGHUP";
  }
  return "a signal";
}

}  // namespace preload::run
