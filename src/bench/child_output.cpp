// SPDX-License-Identifier: Apache-2.0
#include "bench/child_output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>

#include "base/fd.hpp"

extern char** environ;

namespace preload::bench {

namespace {

using Clock = std::chrono::steady_clock;

// Killed and reaped unless it has been waited for.
class Child {
 public:
  explicit Child(pid_t pid) noexcept : pid_(pid) {}
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
};

std::vector<std::string> merged(const std::map<std::string, std::string>& over) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!over.contains(text.substr(0, text.find('=')))) result.push_back(text);
  }
  for (const auto& [name, value] : over) {
    if (!value.empty()) result.push_back(name + "=" + value);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

pid_t spawn(std::vector<std::string> command, std::vector<std::string> environment, int output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, 1);
  pid_t pid = 0;
  const int error = ::posix_spawnp(&pid, command.front().c_str(), &actions, nullptr,
                                   pointers(command).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw Error(Errc::kInternal,
                fmt::format("{} cannot be started: {}", command.front(), errno_text(error)));
  }
  return pid;
}

// What comes until the end of the pipe; nothing when that is not reached by `deadline`.
std::optional<std::string> read_until(int fd, Clock::time_point deadline) {
  std::string text;
  std::array<char, 1 << 14> buffer;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    pollfd waiting{fd, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<long>(left, 60'000)));
    if (ready < 0 && errno != EINTR) check_sys(ready, "poll");
    if (ready <= 0) continue;
    const long got = check_sys(::read(fd, buffer.data(), buffer.size()), "reading from a child");
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

std::string child_output(const std::vector<std::string>& command,
                         const std::map<std::string, std::string>& environment,
                         std::chrono::seconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  int ends[2] = {-1, -1};
  check_sys(::pipe2(ends, O_CLOEXEC), "pipe");
  const Fd from(ends[0]);
  Fd to(ends[1]);
  Child child(spawn(command, merged(environment), to.get()));
  to.reset();
  const std::optional<std::string> text = read_until(from.get(), deadline);
  if (!text) {
    throw Error(Errc::kInternal,
                fmt::format("{} did not end within {} s", command.front(), limit.count()));
  }
  const int status = child.wait();
  if (WIFSIGNALED(status)) {
    throw Error(Errc::kInternal,
                fmt::format("{} was ended by signal {}", command.front(), WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) != 0) {
    throw Error(Errc::kInternal,
                fmt::format("{} ended with status {}", command.front(), WEXITSTATUS(status)));
  }
  return *text;
}

}  // namespace preload::bench
