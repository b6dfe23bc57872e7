// SPDX-License-Identifier: Apache-2.0
#include "base/prompt_write.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/fd.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// What a descriptor leads to, to be written to without waiting.
class Outlet {
 public:
  explicit Outlet(int fd) noexcept : fd_(fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return;
    is_socket_ = S_ISSOCK(status.st_mode);
    // Pipes and terminals are opened anew, since O_NONBLOCK on the descriptor itself would be set
    // for every process that shares it. Files never make a writer wait.
    if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
      std::array<char, 32> path{};
      std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", fd);
      own_.reset(::open(path.data(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    }
  }
  int fd() const noexcept { return own_ ? own_.get() : fd_; }
  ssize_t write(std::string_view text) const noexcept {
    if (is_socket_) return ::send(fd(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return ::write(fd(), text.data(), text.size());
  }

 private:
  int fd_;
  Fd own_;
  bool is_socket_ = false;
};

}  // namespace

bool write_promptly(int fd, std::string_view text, milliseconds patience) noexcept {
  const Outlet out(fd);
  const auto deadline = Clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd polled{out.fd(), POLLOUT, 0};
    const int ready = ::poll(&polled, 1, left.count() > 0 ? static_cast<int>(left.count()) : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || (polled.revents & POLLOUT) == 0) return false;  // full, or nobody reads
    const ssize_t written = out.write(text);
    if (written >= 0) text.remove_prefix(static_cast<std::size_t>(written));
    if (text.empty()) return true;
    if (written < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (Clock::now() >= deadline) return false;
  }
}

void open_standard_descriptors() noexcept {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // The lowest free number is given out, which is this one.
    if (::fcntl(fd, F_GETFD) < 0) [[maybe_unused]]
      const int opened = ::open("/dev/null", O_RDWR);
  }
}

}  // namespace preload
