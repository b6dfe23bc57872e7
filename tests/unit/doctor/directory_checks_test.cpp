// SPDX-License-Identifier: Apache-2.0
#include "doctor/directory_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "unit/serve/live_server.hpp"

namespace preload::doctor {
namespace {

using testing::HasSubstr;

TEST(DirectoryCheck, IsRightForOursAndForOneThatIsNotThereYet) {
  const TempDir temp;
  EXPECT_EQ(check_directory(temp.path()).grade, Grade::kOk);
  EXPECT_EQ(check_directory(temp.file("none")).grade, Grade::kOk);
}

TEST(DirectoryCheck, RefusesOneThatOthersMayWrite) {
  const TempDir temp;
  ASSERT_EQ(::chmod(temp.path().c_str(), 0777), 0);
  const Check check = check_directory(temp.path());
  EXPECT_EQ(check.grade, Grade::kFail);
  EXPECT_THAT(check.text, HasSubstr("chmod 700"));
}

TEST(DirectoryCheck, RefusesALink) {
  const TempDir temp;
  ASSERT_EQ(::symlink("/tmp", temp.file("link").c_str()), 0);
  EXPECT_EQ(check_directory(temp.file("link")).grade, Grade::kFail);
}

TEST(DaemonsCheck, CountsThoseThatServeAndNamesWhatIsLeft) {
  LiveServer live;
  live.start();
  EXPECT_EQ(check_daemons(live.temp().path()).front().grade, Grade::kOk);
  StateFile tombstone;
  tombstone.state = "FAILED";
  tombstone.text = "the disk is gone";
  write_state(live.directory(), {"host:5", "", Role::kTarget}, tombstone);
  const Check check = check_daemons(live.temp().path()).front();
  EXPECT_EQ(check.grade, Grade::kWarn);
  EXPECT_THAT(check.text, HasSubstr("1 answer"));
  EXPECT_THAT(check.text, HasSubstr("host:5: the disk is gone"));
}

TEST(DaemonsCheck, HasNothingToSayOfADirectoryThatIsNotThere) {
  const TempDir temp;
  EXPECT_TRUE(check_daemons(temp.file("none")).empty());
}

TEST(KeeperCheck, WarnsOfOneThatHangs) {
  EXPECT_EQ(judge_keeper(true, true).grade, Grade::kOk);
  EXPECT_EQ(judge_keeper(false, false).grade, Grade::kOk);
  EXPECT_EQ(judge_keeper(false, true).grade, Grade::kWarn);
}

}  // namespace
}  // namespace preload::doctor
