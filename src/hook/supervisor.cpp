// SPDX-License-Identifier: Apache-2.0
#include "hook/supervisor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "hook/process_tree.hpp"

namespace preload::hook {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kKillAgain{50};  // for what was forked meanwhile
constexpr int kNotStarted = 127;        // as shells have it

// In the child: everything as a program expects to find it, but for the session.
[[noreturn]] void become(const std::string& command, pid_t supervisor) {
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // should the supervisor itself be killed
  if (getppid() != supervisor) _exit(kNotStarted);
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(kNotStarted);
}

// Launchers, MPI and drivers leave descriptors open that are none of the hook's.
void keep_descriptors() {
  if (close_range(kControlDescriptor, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  // Before Linux 5.11.
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    if (fd >= kControlDescriptor) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

class Supervisor {
 public:
  explicit Supervisor(const std::string& command) {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    keep_descriptors();
    // A launcher that signals all processes of a step means the rank, which tells this one.
    for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGPIPE}) {
      ::signal(signal, SIG_IGN);
    }
    sigset_t child_ended;
    sigemptyset(&child_ended);
    sigaddset(&child_ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_ended, nullptr);
    signals_ = Fd(static_cast<int>(
        check_sys(signalfd(-1, &child_ended, SFD_CLOEXEC | SFD_NONBLOCK), "signalfd")));
    const pid_t self = getpid();
    hook_ = static_cast<pid_t>(check_sys(fork(), "cannot start another process"));
    if (hook_ == 0) become(command, self);
  }

  int run() {
    while (reap()) {
      wait_for_news();
      if (ending_) press();
    }
    send(kControlDescriptor, &report_, sizeof report_, MSG_NOSIGNAL);
    return 0;
  }

 private:
  // False once no child is left.
  bool reap() {
    for (;;) {
      int status = 0;
      const pid_t ended = waitpid(-1, &status, WNOHANG);
      if (ended == 0) return true;
      if (ended < 0) return errno == EINTR;
      if (ended != hook_) continue;
      report_.wait_status = status;
      if (ending_) continue;
      report_.left_over = static_cast<int>(descendants(getpid()).size());
      begin_ending();
    }
  }

  void wait_for_news() {
    pollfd polled[2] = {{signals_.get(), POLLIN, 0}, {kControlDescriptor, POLLIN, 0}};
    poll(polled, ending_ ? 1 : 2, ending_ ? static_cast<int>(kKillAgain.count()) : -1);
    signalfd_siginfo ignored{};
    while (read(signals_.get(), &ignored, sizeof ignored) > 0) {
    }
    if (!ending_ && polled[1].revents != 0) begin_ending();
  }

  void begin_ending() {
    ending_ = Clock::now();
    signal_all(descendants(getpid()), SIGTERM);
    signal_all(descendants(getpid()), SIGCONT);  // what is stopped cannot hear TERM
  }

  void press() {
    if (Clock::now() - *ending_ >= kTermGrace) signal_all(descendants(getpid()), SIGKILL);
  }

  Fd signals_;
  pid_t hook_ = 0;
  std::optional<Clock::time_point> ending_;
  SupervisorReport report_;
};

}  // namespace

int supervise(const std::string& command) { return Supervisor(command).run(); }

}  // namespace preload::hook
