// SPDX-License-Identifier: Apache-2.0
#include "base/prompt_write.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/fd.hpp"
#include "base/log.hpp"

namespace preload {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Descriptor 2 is something else while this lives.
class OtherStderr {
 public:
  explicit OtherStderr(int fd) : before_(::dup(STDERR_FILENO)) { ::dup2(fd, STDERR_FILENO); }
  ~OtherStderr() { ::dup2(before_.get(), STDERR_FILENO); }
  OtherStderr(const OtherStderr&) = delete;
  OtherStderr& operator=(const OtherStderr&) = delete;

 private:
  Fd before_;
};

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    check_sys(::pipe2(ends.data(), O_CLOEXEC), "pipe");
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  void fill() const {
    const int flags = ::fcntl(write.get(), F_GETFL);
    ::fcntl(write.get(), F_SETFL, flags | O_NONBLOCK);
    const std::string block(4096, 'x');
    while (::write(write.get(), block.data(), block.size()) > 0) {
    }
    ::fcntl(write.get(), F_SETFL, flags);
  }
  std::string take() const {
    std::array<char, 4096> buffer;
    const ssize_t got = ::read(read.get(), buffer.data(), buffer.size());
    return {buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
  }
  Fd read, write;
};

TEST(PromptWrite, ReachesAPipeWhole) {
  const Pipe pipe;
  const OtherStderr other(pipe.write.get());
  EXPECT_TRUE(write_promptly(STDERR_FILENO, "a line\n", milliseconds(0)));
  EXPECT_EQ(pipe.take(), "a line\n");
}

TEST(PromptWrite, DoesNotWaitForAPipeThatNobodyEmpties) {
  const Pipe pipe;
  pipe.fill();
  const OtherStderr other(pipe.write.get());
  const auto begin = Clock::now();
  EXPECT_FALSE(write_promptly(STDERR_FILENO, "a line\n", milliseconds(50)));
  EXPECT_GE(Clock::now() - begin, milliseconds(50));
  EXPECT_EQ(::fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0) << "others share this description";
  pipe.take();
  EXPECT_TRUE(write_promptly(STDERR_FILENO, "a line\n", milliseconds(50)));
}

TEST(PromptWrite, IsGivenUpWhenNobodyReadsAnyMore) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  pipe.read.reset();
  const OtherStderr other(pipe.write.get());
  EXPECT_FALSE(write_promptly(STDERR_FILENO, "a line\n", milliseconds(1000)));
}

TEST(PromptWrite, ReachesASocketAndDoesNotWaitForAFullOne) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  const OtherStderr other(ours.get());
  EXPECT_TRUE(write_promptly(STDERR_FILENO, "a line\n", milliseconds(0)));
  std::array<char, 16> buffer{};
  EXPECT_EQ(::read(theirs.get(), buffer.data(), buffer.size()), 7);
  const std::string block(1 << 16, 'x');
  bool written = true;
  for (int i = 0; i < 1000 && written; ++i)
    written = write_promptly(STDERR_FILENO, block, milliseconds(0));
  EXPECT_FALSE(written);
}

TEST(PromptWrite, OfTheLogNeverStopsWhoLogsAndWhatWasLostIsCounted) {
  const Pipe pipe;
  pipe.fill();
  log::set_up(log::Level::kInfo, "");
  {
    const OtherStderr other(pipe.write.get());
    const auto begin = Clock::now();
    for (int i = 0; i < 1000; ++i) log::warn("nobody reads this");
    EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
    const int flags = ::fcntl(pipe.read.get(), F_GETFL);
    ::fcntl(pipe.read.get(), F_SETFL, flags | O_NONBLOCK);
    while (!pipe.take().empty()) {
    }
    log::warn("somebody reads this");
  }
  const std::string said = pipe.take();
  EXPECT_NE(said.find("1000 lines of the log were lost\n"), std::string::npos) << said;
  EXPECT_NE(said.find("somebody reads this"), std::string::npos) << said;
}

TEST(PromptWrite, StandardDescriptorsThatAreMissingBecomeDevNull) {
  const Fd before(::dup(STDIN_FILENO));
  ::close(STDIN_FILENO);
  open_standard_descriptors();
  std::array<char, 64> target{};
  const ssize_t length = ::readlink("/proc/self/fd/0", target.data(), target.size());
  ::dup2(before.get(), STDIN_FILENO);
  ASSERT_GT(length, 0);
  EXPECT_EQ(std::string(target.data(), static_cast<std::size_t>(length)), "/dev/null");
}

}  // namespace
}  // namespace preload
