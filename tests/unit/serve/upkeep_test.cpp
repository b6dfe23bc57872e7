// SPDX-License-Identifier: Apache-2.0
#include "serve/upkeep.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"
#include "serve/connect.hpp"
#include "unit/serve/temp_dir.hpp"

namespace preload {
namespace {

const Endpoint kPlace{"host:0", "", Role::kTarget};

class UpkeepTest : public testing::Test {
 protected:
  bool is_there(const std::string& name) const {
    return ::access(temp_.file(name).c_str(), F_OK) == 0;
  }
  void remove(const std::string& name) const {
    ASSERT_EQ(::unlink(temp_.file(name).c_str()), 0) << name;
  }
  void turn() {
    upkeep_.turn([this] {
      ++bound_;
      listener_ = listen_at(directory_, kPlace.socket_name());
    });
  }

  const TempDir temp_;
  const SocketDir directory_ = temp_.open();
  const Fd lock_ = take_lock(directory_, kPlace);
  Fd listener_ = listen_at(directory_, kPlace.socket_name());
  Upkeep upkeep_{directory_,
                 {kPlace.socket_name(), kPlace.lock_name(), kPlace.state_name()},
                 lock_.get(),
                 std::chrono::milliseconds(0)};
  int bound_ = 0;
};

TEST_F(UpkeepTest, LeavesWhatIsThereAsItIs) {
  struct stat before {};
  struct stat after {};
  ASSERT_EQ(::stat(temp_.file(kPlace.lock_name()).c_str(), &before), 0);
  turn();
  ASSERT_EQ(::stat(temp_.file(kPlace.lock_name()).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(bound_, 0);
  EXPECT_FALSE(is_there(kPlace.state_name()));
}

TEST_F(UpkeepTest, MakesARemovedSocketAndLockAnew) {
  remove(kPlace.socket_name());
  remove(kPlace.lock_name());
  EXPECT_FALSE(lock_is_held(directory_, kPlace.lock_name()));
  turn();
  EXPECT_EQ(bound_, 1);
  EXPECT_TRUE(lock_is_held(directory_, kPlace.lock_name()));
  EXPECT_EQ(lock_holder(directory_, kPlace.lock_name()), ::getpid());
  EXPECT_TRUE(connect_to(directory_, kPlace.socket_name(), 1000));
  EXPECT_THROW(take_lock(directory_, kPlace), Error);
  turn();
  EXPECT_EQ(bound_, 1) << "once";
}

TEST_F(UpkeepTest, TakesALockThatAnotherLeftBehind) {
  remove(kPlace.lock_name());
  EXPECT_THROW(take_lock(directory_, kPlace), Error) << "somebody listens";
  EXPECT_TRUE(is_there(kPlace.lock_name()));
  EXPECT_FALSE(lock_is_held(directory_, kPlace.lock_name()));
  turn();
  EXPECT_TRUE(lock_is_held(directory_, kPlace.lock_name()));
  EXPECT_EQ(bound_, 0);
}

TEST_F(UpkeepTest, LeavesALockToWhoHasTakenIt) {
  remove(kPlace.socket_name());
  remove(kPlace.lock_name());
  const Fd other = take_lock(directory_, kPlace);
  testing::internal::CaptureStderr();
  turn();
  turn();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(bound_, 0) << "whose place it is now";
  EXPECT_EQ(said.find("is made anew"), std::string::npos) << said;
}

TEST_F(UpkeepTest, SaysOnceThatAnotherHasThePlace) {
  remove(kPlace.socket_name());
  remove(kPlace.lock_name());
  const Fd other = take_lock(directory_, kPlace);
  testing::internal::CaptureStderr();
  turn();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "it may go again";
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) turn();
  const std::string said = testing::internal::GetCapturedStderr();
  const std::size_t at = said.find("has taken this daemon's place");
  EXPECT_NE(at, std::string::npos) << said;
  EXPECT_EQ(said.find("has taken this daemon's place", at + 1), std::string::npos) << said;
}

}  // namespace
}  // namespace preload
