// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "serve/connect.hpp"
#include "serve/socket_dir.hpp"
#include "support/no_room.hpp"
#include "unit/serve/temp_dir.hpp"

namespace preload {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

const Endpoint kEndpoint{"host:0", "", Role::kTarget};

TEST(Lock, SecondHolderFailsWithinASecondAndIsToldTheFirstOnesPid) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd lock = take_lock(directory, kEndpoint);
  const auto begin = Clock::now();
  try {
    take_lock(directory, kEndpoint);
    FAIL() << "two daemons have the lock";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kBusy);
    EXPECT_EQ(exit_status(error.code()), 6);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("host:0"), HasSubstr(std::to_string(::getpid())),
                                    HasSubstr("--slot")));
  }
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(1));
}

// As who cleans up /tmp may do it: the lock that is left then is nobody's.
TEST(Lock, OfAFileThatWasRemovedLetsNoSecondDaemonIn) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd lock = take_lock(directory, kEndpoint);
  const Fd listener = listen_at(directory, kEndpoint.socket_name());
  ASSERT_EQ(::unlink(temp.file(kEndpoint.lock_name()).c_str()), 0);
  for (int i = 0; i < 2; ++i) {
    try {
      take_lock(directory, kEndpoint);
      FAIL() << "two daemons serve";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kBusy);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("pid " + std::to_string(::getpid())),
                                      HasSubstr("was removed"), HasSubstr("preload stop")));
    }
    EXPECT_TRUE(connect_to(directory, kEndpoint.socket_name(), 1000)) << "the first one's stays";
  }
}

TEST(Lock, IsNoDirectoryAndNoSymbolicLink) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const std::string path = temp.file(kEndpoint.lock_name());
  const auto is_refused = [&](const char* kind) {
    for (const bool take : {true, false}) {
      try {
        if (take)
          take_lock(directory, kEndpoint);
        else
          lock_is_held(directory, kEndpoint.lock_name());
        ADD_FAILURE() << "a " << kind << " is a lock";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::kUsage);
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("'" + path + "'"), HasSubstr(kind), HasSubstr("remove it")));
      }
    }
  };
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  is_refused("directory");
  ASSERT_EQ(::rmdir(path.c_str()), 0);
  ASSERT_EQ(::symlink("/etc/hostname", path.c_str()), 0);
  is_refused("symbolic link");
}

TEST(Lock, IsOfTheFileThatHasTheNameInTheEnd) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const std::string name = kEndpoint.lock_name();
  std::atomic<bool> stop{false};
  std::thread remover([&] {
    while (!stop) ::unlink(temp.file(name).c_str());
  });
  for (int i = 0; i < 200; ++i) {
    try {
      static_cast<void>(take_lock(directory, kEndpoint));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kBusy) << error.what();
    }
  }
  stop = true;
  remover.join();
  const Fd lock = take_lock(directory, kEndpoint);
  EXPECT_TRUE(lock_is_held(directory, name));
}

TEST(Lock, AnotherSlotOrRoleIsAnotherLock) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  const Fd first = take_lock(directory, kEndpoint);
  EXPECT_TRUE(take_lock(directory, {"host:0", "b", Role::kTarget}));
  EXPECT_TRUE(take_lock(directory, {"host:0", "", Role::kDraft}));
  EXPECT_TRUE(take_lock(directory, {"host:1", "", Role::kTarget}));
}

TEST(Lock, IsFreeAgainWhenTheHolderWasKilled) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const Fd lock = take_lock(directory, kEndpoint);
    [[maybe_unused]] const ssize_t n = ::write(ready[1], "x", 1);
    while (true) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_TRUE(lock_is_held(directory, kEndpoint.lock_name()));
  EXPECT_EQ(lock_holder(directory, kEndpoint.lock_name()), child);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(lock_is_held(directory, kEndpoint.lock_name()));
  EXPECT_TRUE(take_lock(directory, kEndpoint));
}

TEST(Lock, FileStaysWhenTheLockIsGivenUp) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  { const Fd lock = take_lock(directory, kEndpoint); }
  EXPECT_EQ(directory.list(), std::vector<std::string>{kEndpoint.lock_name()});
}

TEST(Lock, ProbesMakeNoFile) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  EXPECT_FALSE(lock_is_held(directory, kEndpoint.lock_name()));
  EXPECT_TRUE(directory.list().empty());
}

TEST(Lock, ProbesNeverMakeADaemonFail) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  { const Fd lock = take_lock(directory, kEndpoint); }
  std::atomic<bool> stop{false};
  std::thread prober([&] {
    while (!stop) {
      // Holds the probe's shared lock for longer than a real probe does.
      const Fd fd(::openat(directory.fd(), kEndpoint.lock_name().c_str(), O_RDONLY | O_CLOEXEC));
      if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ::flock(fd.get(), LOCK_UN);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  for (int i = 0; i < 20; ++i) EXPECT_NO_THROW(take_lock(directory, kEndpoint));
  stop = true;
  prober.join();
}

TEST(Lock, IsTakenWhereNothingCanBeWritten) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  Fd lock;
  {
    const test::NoRoom no_room;
    EXPECT_NO_THROW(lock = take_lock(directory, kEndpoint));
  }
  EXPECT_TRUE(lock_is_held(directory, kEndpoint.lock_name()));
  EXPECT_EQ(lock_holder(directory, kEndpoint.lock_name()), std::nullopt);
  try {
    take_lock(directory, kEndpoint);
    ADD_FAILURE() << "taken twice";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("another process"));
  }
}

TEST(Lock, RefusesASymlinkInItsPlace) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  std::ofstream(temp.file("elsewhere"));
  ASSERT_EQ(::symlink("elsewhere", temp.file(kEndpoint.lock_name()).c_str()), 0);
  EXPECT_THROW(take_lock(directory, kEndpoint), Error);
  EXPECT_THROW(lock_is_held(directory, kEndpoint.lock_name()), Error);
}

TEST(StateFile, SurvivesTheDisk) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  StateFile state;
  state.state = "FAILED";
  state.job = "slurm-1.0";
  state.global_rank = 3;
  state.local_size = 8;
  state.model = "/models/m";
  state.progress = {1ULL << 33, 1ULL << 34,
                    1ULL << 30, 8.0,
                    2,          wire::StalledRead{"/models/m/a.safetensors", 4096, 100, 12.5},
                    "warm-up"};
  state.code = "memory";
  state.text = "too little";
  state.exit_status = 4;
  write_state(directory, kEndpoint, state);
  const auto got = read_state(directory, kEndpoint.state_name());
  ASSERT_TRUE(got);
  EXPECT_EQ(got->state, "FAILED");
  EXPECT_EQ(got->device, "host:0");
  EXPECT_EQ(got->role, "target");
  EXPECT_EQ(got->job, "slurm-1.0");
  EXPECT_EQ(got->pid, ::getpid());
  EXPECT_EQ(got->boot_id, current_boot_id());
  EXPECT_EQ(got->boot_id.size(), 36U);
  EXPECT_EQ(got->global_rank, 3);
  EXPECT_EQ(got->local_size, 8);
  EXPECT_EQ(got->progress, state.progress);
  EXPECT_GT(got->time_ms, 1'700'000'000'000);
  EXPECT_EQ(got->text, "too little");
  EXPECT_EQ(got->exit_status, 4);
}

TEST(StateFile, LeavesNothingElseBehind) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  write_state(directory, kEndpoint, {});
  EXPECT_EQ(directory.list(), std::vector<std::string>{kEndpoint.state_name()});
  remove_state(directory, kEndpoint);
  remove_state(directory, kEndpoint);
  EXPECT_TRUE(directory.list().empty());
}

TEST(StateFile, WhatIsNoneSaysNothing) {
  const TempDir temp;
  const SocketDir directory = temp.open();
  EXPECT_FALSE(read_state(directory, "none.state"));
  std::ofstream(temp.file("a.state")) << "{";
  std::ofstream(temp.file("b.state")) << R"({"state":1})";
  ASSERT_EQ(::symlink("a.state", temp.file("c.state").c_str()), 0);
  for (const char* name : {"a.state", "b.state", "c.state"})
    EXPECT_FALSE(read_state(directory, name)) << name;
}

}  // namespace
}  // namespace preload
