// SPDX-License-Identifier: Apache-2.0
#include "run/signals.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>

#include "base/fd.hpp"
#include "serve/stop_request.hpp"

namespace preload::run {
namespace {

using std::chrono::milliseconds;

// Signals and their masks belong to a whole process: each test has one of its own.
class SignalWatchDeathTest : public testing::Test {
 protected:
  void SetUp() override { testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};

TEST_F(SignalWatchDeathTest, GivesTheFirstSignalToTheCallback) {
  EXPECT_EXIT(
      {
        const SignalWatch watch([](int signal) { std::_Exit(signal == SIGTERM ? 77 : 1); });
        kill(getpid(), SIGTERM);
        std::this_thread::sleep_for(milliseconds(10'000));
      },
      testing::ExitedWithCode(77), "");
}

TEST_F(SignalWatchDeathTest, TakesWhatLaunchersPassOnForWhatTheyKeepToThemselves) {
  for (const auto& [sent, meant] : {std::pair(SIGUSR1, SIGTERM), std::pair(SIGUSR2, SIGINT)}) {
    EXPECT_EXIT(
        {
          const SignalWatch watch([](int signal) { std::_Exit(signal); });
          kill(getpid(), sent);
          std::this_thread::sleep_for(milliseconds(10'000));
        },
        testing::ExitedWithCode(meant), "");
  }
}

TEST_F(SignalWatchDeathTest, LeavesAHangUpIgnoredThatNohupIgnored) {
  EXPECT_EXIT(
      {
        ::signal(SIGHUP, SIG_IGN);
        const SignalWatch watch([](int signal) { std::_Exit(signal == SIGTERM ? 78 : 1); });
        kill(getpid(), SIGHUP);
        std::this_thread::sleep_for(milliseconds(200));
        kill(getpid(), SIGTERM);
        std::this_thread::sleep_for(milliseconds(10'000));
      },
      testing::ExitedWithCode(78), "");
}

TEST_F(SignalWatchDeathTest, TellsWhatPreloadStopAsksForFromASignalThatAnybodySends) {
  const auto becomes = [](const std::function<void()>& send) {
    const SignalWatch watch([](int) { std::_Exit(1); }, [] { std::_Exit(2); });
    send();
    std::this_thread::sleep_for(milliseconds(10'000));
  };
  const auto queue = [](int value) {
    sigval word{};
    word.sival_int = value;
    sigqueue(getpid(), SIGTERM, word);
  };
  EXPECT_EXIT(becomes([] {
                const Fd self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
                send_stop_request(self.get());
              }),
              testing::ExitedWithCode(2), "");
  EXPECT_EXIT(becomes([&] { queue(1); }), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(becomes([] { kill(getpid(), SIGTERM); }), testing::ExitedWithCode(1), "");
}

TEST_F(SignalWatchDeathTest, TakesTwoSignalsAtOnceForOneRequest) {
  EXPECT_EXIT(
      {
        const SignalWatch watch([](int) {});
        kill(getpid(), SIGTERM);
        std::this_thread::sleep_for(milliseconds(100));
        kill(getpid(), SIGINT);
        std::this_thread::sleep_for(milliseconds(300));
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(SignalWatchDeathTest, EndsTheProcessOnASecondRequest) {
  EXPECT_EXIT(
      {
        const SignalWatch watch([](int) {});
        kill(getpid(), SIGTERM);
        std::this_thread::sleep_for(milliseconds(1500));
        kill(getpid(), SIGINT);
        std::this_thread::sleep_for(milliseconds(10'000));
      },
      testing::ExitedWithCode(130), "");
}

TEST_F(SignalWatchDeathTest, SurvivesAWriteToAClosedPipe) {
  EXPECT_EXIT(
      {
        const SignalWatch watch([](int) {});
        int ends[2];
        if (pipe(ends) != 0) std::_Exit(1);
        close(ends[0]);
        std::_Exit(write(ends[1], "x", 1) == -1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(SignalName, IsTheKernels) { EXPECT_EQ(signal_name(SIGTERM), "SIGTERM"); }

}  // namespace
}  // namespace preload::run
