// SPDX-License-Identifier: Apache-2.0
#include "hook/hook.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "hook/line_splitter.hpp"
#include "hook/orphans.hpp"
#include "hook/supervisor.hpp"

namespace preload::hook {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kTurn{50};
// What is left in the pipe when all is over; a log that takes no more is not waited for.
constexpr milliseconds kLastWords{3'000};
constexpr std::size_t kReadBytes = 1 << 12;  // few lines between two looks at the clock
// From the order to end to the report that nothing is left: past KILL a process may still have to
// give a GPU's memory back.
constexpr milliseconds kAllGone{kTermGrace + milliseconds(30'000)};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

pid_t spawn_supervisor(const std::string& executable, const Hook& hook, int output, int control) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
  posix_spawn_file_actions_adddup2(&actions, control, kControlDescriptor);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);  // a terminal's ^C is the rank's alone
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> arguments{executable, std::string(kSupervisorCommand), hook.command};
  std::vector<std::string> environment = hook.environment;
  pid_t pid = 0;
  const int error = posix_spawn(&pid, executable.c_str(), &actions, &attributes,
                                pointers(arguments).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw Error(Errc::kInternal, fmt::format("the warm-up command cannot be started: {}: {}",
                                             executable, errno_text(error)));
  }
  return pid;
}

// A supervisor and both of its channels.
class Running {
 public:
  Running(const Hook& hook, const std::string& executable) : start_(Clock::now()) {
    std::array<int, 2> pipe_ends{};
    check_sys(::pipe2(pipe_ends.data(), O_CLOEXEC), "pipe");
    output_ = Fd(pipe_ends[0]);
    const Fd write_end(pipe_ends[1]);
    check_sys(::fcntl(output_.get(), F_SETFL, O_NONBLOCK), "fcntl");
    std::array<int, 2> sockets{};
    check_sys(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()),
              "socketpair");
    control_ = Fd(sockets[0]);
    const Fd its_end(sockets[1]);
    pid_ = spawn_supervisor(executable, hook, write_end.get(), its_end.get());
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  // A supervisor that has not reported leaves what it looked after to this process.
  ~Running() {
    control_.reset();
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      reap();
    }
    if (!report_) orphans_.end();
  }

  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void end() { ::shutdown(control_.get(), SHUT_WR); }

  // Waits for output or news, at most for a turn. True when the supervisor has said its last word.
  bool turn(LineSplitter& lines) {
    pollfd polled[2] = {{output_.get(), POLLIN, 0}, {control_.get(), POLLIN, 0}};
    if (output_closed_) polled[0].fd = -1;
    ::poll(polled, 2, static_cast<int>(kTurn.count()));
    read_output(lines, kTurn);
    if (polled[1].revents == 0) return false;
    SupervisorReport report;
    if (::recv(control_.get(), &report, sizeof report, 0) == sizeof report) report_ = report;
    read_output(lines, kLastWords);
    reap();
    return true;
  }
  const std::optional<SupervisorReport>& report() const noexcept { return report_; }

 private:
  // A command may print faster than its lines can be logged.
  void read_output(LineSplitter& lines, milliseconds longest) {
    std::array<char, kReadBytes> buffer;
    const auto until = Clock::now() + longest;
    do {
      const auto got = ::read(output_.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        output_closed_ = got == 0;
        return;
      }
      lines.add({buffer.data(), static_cast<std::size_t>(got)});
    } while (Clock::now() < until);
  }
  void reap() {
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
  }

  const Clock::time_point start_;
  Orphans orphans_;
  Fd output_, control_;
  bool output_closed_ = false;
  pid_t pid_ = 0;
  std::optional<SupervisorReport> report_;
};

}  // namespace

std::string describe(const HookEnd& end) {
  switch (end.cause) {
    case HookEnd::Cause::kExited:
      return fmt::format("ended with status {} after {:.1f} s", end.number, end.seconds);
    case HookEnd::Cause::kSignalled:
      return fmt::format("was ended by signal {} ({}) after {:.1f} s", end.number,
                         ::strsignal(end.number), end.seconds);
    case HookEnd::Cause::kTimedOut:
      return fmt::format("did not end within its limit and was ended after {:.1f} s", end.seconds);
    case HookEnd::Cause::kCancelled:
      return fmt::format("was ended after {:.1f} s, since the rank ends", end.seconds);
    case HookEnd::Cause::kLost:
      return fmt::format(
          "lost its supervisor after {:.1f} s: it was killed, or processes of the "
          "command could not be",
          end.seconds);
  }
  return "ended";
}

HookEnd run(const Hook& hook, const Cancel& cancel,
            const std::function<void(std::string_view)>& on_line, const std::string& supervisor) {
  LineSplitter lines(on_line);
  Running running(hook, supervisor);
  const auto limit = Clock::now() + hook.limit;
  std::optional<HookEnd::Cause> forced;
  std::optional<Clock::time_point> gone_by;
  bool settled = false;
  while (!settled && (!gone_by || Clock::now() < *gone_by)) {
    settled = running.turn(lines);
    if (forced || settled) continue;
    if (cancel.requested()) {
      forced = HookEnd::Cause::kCancelled;
    } else if (Clock::now() >= limit) {
      forced = HookEnd::Cause::kTimedOut;
    }
    if (!forced) continue;
    running.end();
    gone_by = Clock::now() + kAllGone;
  }
  lines.end();
  HookEnd end{HookEnd::Cause::kLost, 0, 0, running.seconds()};
  if (!running.report()) return end;
  const int status = running.report()->wait_status;
  end.left_over = running.report()->left_over;
  if (forced) {
    end.cause = *forced;
  } else if (WIFSIGNALED(status)) {
    end.cause = HookEnd::Cause::kSignalled;
    end.number = WTERMSIG(status);
  } else {
    end.cause = HookEnd::Cause::kExited;
    end.number = WEXITSTATUS(status);
  }
  return end;
}

}  // namespace preload::hook
