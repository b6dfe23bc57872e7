// SPDX-License-Identifier: Apache-2.0
#include "run/progress_line.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "base/fd.hpp"

namespace preload::run {
namespace {

using testing::HasSubstr;
using testing::Not;

// A terminal of 20 columns and what has been written to it.
class Terminal {
 public:
  Terminal() {
    ours_ = Fd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    check_sys(ours_.get(), "posix_openpt");
    check_sys(grantpt(ours_.get()), "grantpt");
    check_sys(unlockpt(ours_.get()), "unlockpt");
    theirs_ = open_fd(AT_FDCWD, ptsname(ours_.get()), O_RDWR | O_NOCTTY, 0, Errc::kInternal);
    winsize size{};
    size.ws_col = 20;
    check_sys(ioctl(theirs_.get(), TIOCSWINSZ, &size), "TIOCSWINSZ");
    fcntl(ours_.get(), F_SETFL, O_NONBLOCK);
  }
  int fd() const { return theirs_.get(); }
  std::string written() const {
    std::array<char, 4096> buffer{};
    const ssize_t n = ::read(ours_.get(), buffer.data(), buffer.size());
    return {buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0};
  }

 private:
  Fd ours_, theirs_;
};

TEST(ProgressLine, IsRedrawnOnATerminalAndLeavesItClean) {
  const Terminal terminal;
  ProgressLine line(terminal.fd());
  line.show("1 of 9", {});
  EXPECT_EQ(terminal.written(), "\r1 of 9\x1b[K\r");
  line.show("2 of 9", {});
  EXPECT_EQ(terminal.written(), "\r2 of 9\x1b[K\r");
  line.end();
  EXPECT_EQ(terminal.written(), "\r\x1b[K");
  line.end();
  EXPECT_EQ(terminal.written(), "");
}

TEST(ProgressLine, NeverWraps) {
  const Terminal terminal;
  ProgressLine line(terminal.fd());
  line.show(std::string(100, 'x'), {});
  EXPECT_EQ(terminal.written(), "\r" + std::string(19, 'x') + "\x1b[K\r");
}

TEST(ProgressLine, IsALogLineEveryTenSecondsElsewhere) {
  const Fd null = open_fd(AT_FDCWD, "/dev/null", O_WRONLY, 0, Errc::kInternal);
  testing::internal::CaptureStderr();
  {
    ProgressLine line(null.get());
    const ProgressLine::Clock::time_point start{std::chrono::hours(1)};
    for (int second = 0; second <= 25; ++second) {
      line.show("at " + std::to_string(second) + ";", start + std::chrono::seconds(second));
    }
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("at 10;"));
  EXPECT_THAT(log, HasSubstr("at 20;"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_THAT(log, Not(HasSubstr("\r")));
}

}  // namespace
}  // namespace preload::run
