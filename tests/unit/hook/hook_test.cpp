// SPDX-License-Identifier: Apache-2.0
#include "hook/hook.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "hook/environment.hpp"
#include "hook/process_tree.hpp"

namespace preload::hook {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

constexpr seconds kAmple{120};

class HookTest : public testing::Test {
 protected:
  HookEnd run(const std::string& command, seconds limit = kAmple) {
    Hook hook;
    hook.command = command;
    hook.environment = own_environment();
    hook.limit = limit;
    return hook::run(hook, cancel_, [this](std::string_view line) {
      lines_.emplace_back(line);
      if (lines_.back() == "cancel me") cancel_.request({143, "asked to"});
    });
  }
  // A pid that the command printed.
  pid_t printed(std::size_t line) const { return static_cast<pid_t>(std::stol(lines_.at(line))); }
  static bool runs(pid_t pid) { return ::kill(pid, 0) == 0 || errno != ESRCH; }

  Cancel cancel_;
  std::vector<std::string> lines_;
};

TEST_F(HookTest, HandsOnOutputAndStatus) {
  const HookEnd end = run("echo out; echo err >&2; printf last; exit 3");
  EXPECT_EQ(end.cause, HookEnd::Cause::kExited);
  EXPECT_EQ(end.number, 3);
  EXPECT_FALSE(end.succeeded());
  EXPECT_EQ(end.left_over, 0);
  EXPECT_THAT(lines_, ElementsAre("out", "err", "last"));
  EXPECT_TRUE(run("true").succeeded());
}

TEST_F(HookTest, KeepsAllOfALongOutput) {
  EXPECT_TRUE(run("seq 1 20000").succeeded());
  ASSERT_EQ(lines_.size(), 20000U);
  EXPECT_EQ(lines_.back(), "20000");
}

TEST_F(HookTest, TellsASignalFromAStatus) {
  const HookEnd end = run("kill -USR2 $$");
  EXPECT_EQ(end.cause, HookEnd::Cause::kSignalled);
  EXPECT_EQ(end.number, SIGUSR2);
}

TEST_F(HookTest, SaysThatThereIsNoSuchCommandAsAShellDoes) {
  EXPECT_EQ(run("/nonexistent/program").number, 127);
}

TEST_F(HookTest, EndsEverythingAtTheLimitInWhicheverSession) {
  const HookEnd end =
      run("echo $$; setsid sh -c 'trap \"\" TERM; echo $$; setsid sleep 1000 & sleep 1000' & "
          "trap '' TERM; sleep 1000; sleep 1000",
          seconds(8));
  EXPECT_EQ(end.cause, HookEnd::Cause::kTimedOut);
  EXPECT_FALSE(end.succeeded());
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_FALSE(runs(printed(0)));
  EXPECT_FALSE(runs(printed(1)));
  EXPECT_THAT(descendants(::getpid()), ElementsAre());
}

TEST_F(HookTest, EndsWhatTheCommandLeavesRunning) {
  const HookEnd end = run("setsid sleep 1000 & echo $!");
  EXPECT_TRUE(end.succeeded());
  EXPECT_EQ(end.left_over, 1);
  EXPECT_LT(end.seconds, 60);  // it does not wait for it
  EXPECT_FALSE(runs(printed(0)));
}

// One that never stops to print fills the pipe faster than it is read.
TEST_F(HookTest, EndsWhatPrintsWithoutEndAtItsLimitAndWhenTheRankIsToEnd) {
  const Hook endless{"yes", own_environment(), seconds(1)};
  EXPECT_EQ(hook::run(endless, cancel_, [](std::string_view) {}).cause, HookEnd::Cause::kTimedOut);
  // A log that is slow.
  EXPECT_EQ(hook::run(endless, cancel_,
                      [](std::string_view) {
                        std::this_thread::sleep_for(std::chrono::microseconds(100));
                      })
                .cause,
            HookEnd::Cause::kTimedOut);
  const Hook stopped{"yes", own_environment(), kAmple};
  const HookEnd end = hook::run(stopped, cancel_, [this](std::string_view) {
    if (!cancel_.requested()) cancel_.request({143, "asked to"});
  });
  EXPECT_EQ(end.cause, HookEnd::Cause::kCancelled);
  EXPECT_LT(end.seconds, 60);
}

TEST_F(HookTest, LeavesNothingWhenItsSupervisorIsKilled) {
  const Hook hook{"setsid sleep 1000 & echo $!; echo $PPID; wait", own_environment(), kAmple};
  const HookEnd end = hook::run(hook, cancel_, [this](std::string_view line) {
    lines_.emplace_back(line);
    if (lines_.size() == 2) ::kill(printed(1), SIGKILL);
  });
  EXPECT_EQ(end.cause, HookEnd::Cause::kLost);
  EXPECT_FALSE(end.succeeded());
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_FALSE(runs(printed(0)));
  EXPECT_THAT(descendants(::getpid()), ElementsAre());
}

TEST_F(HookTest, EndsItAtOnceWhenTheRankIsToEnd) {
  const HookEnd end = run("echo $$; echo 'cancel me'; sleep 1000");
  EXPECT_EQ(end.cause, HookEnd::Cause::kCancelled);
  EXPECT_LT(end.seconds, 60);
  EXPECT_FALSE(runs(printed(0)));
}

TEST_F(HookTest, StartsItWithDefaultSignalsAndNothingMoreOpen) {
  int inherited[2];  // as a launcher or a library leaves them
  ASSERT_EQ(::pipe(inherited), 0);
  ::signal(SIGPIPE, SIG_IGN);
  EXPECT_TRUE(run("grep -E 'SigIgn|SigBlk' /proc/self/status; for each in /proc/$$/fd/*; do "
                  "[ ${each##*/} -le 2 ] || readlink $each; done; true")
                  .succeeded());
  ::signal(SIGPIPE, SIG_DFL);
  for (const int fd : inherited) ::close(fd);
  ASSERT_THAT(lines_, testing::SizeIs(2));         // and not one descriptor
  constexpr unsigned long kOrdinary = 0x7fffffff;  // a bit each for signals 1 to 31
  for (std::size_t line = 0; line < 2; ++line) {
    const std::string& text = lines_[line];
    EXPECT_EQ(std::stoul(text.substr(text.find(':') + 1), nullptr, 16) & kOrdinary, 0U) << text;
  }
}

TEST_F(HookTest, SaysWhenItCannotBeStarted) {
  Hook hook{"true", {}, kAmple};
  EXPECT_THROW(hook::run(
                   hook, cancel_, [](std::string_view) {}, "/nonexistent/supervisor"),
               Error);
}

// The rank itself is killed: nobody tells the supervisor but the end of their channel.
TEST_F(HookTest, GoesWithARankThatIsKilled) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t rank = ::fork();
  ASSERT_GE(rank, 0);
  if (rank == 0) {
    Hook hook{"echo $$; exec sleep 1000", own_environment(), kAmple};
    hook::run(hook, cancel_, [&](std::string_view line) {
      const auto written = ::write(ends[1], line.data(), line.size());
      ::_exit(written > 0 ? 0 : 1);  // as suddenly as by a signal
    });
    ::_exit(2);
  }
  ::close(ends[1]);
  char text[32] = {};
  ASSERT_GT(::read(ends[0], text, sizeof text - 1), 0);
  ::close(ends[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(rank, &status, 0), rank);
  EXPECT_EQ(status, 0);
  const auto deadline = std::chrono::steady_clock::now() + kAmple;
  while (runs(static_cast<pid_t>(std::atoi(text))) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(runs(static_cast<pid_t>(std::atoi(text))));
}

}  // namespace
}  // namespace preload::hook
