// SPDX-License-Identifier: Apache-2.0
#include "doctor/user_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "unit/serve/temp_dir.hpp"

namespace preload::doctor {
namespace {

using testing::HasSubstr;

TEST(CacheCheck, FollowsTheVariablesInTheirOrder) {
  const TempDir temp;
  const Variables all = Variables::of({{"PRELOAD_CACHE_ROOT", temp.file("a")},
                                       {"XDG_CACHE_HOME", temp.file("b")},
                                       {"HOME", temp.file("c")}});
  EXPECT_EQ(check_cache(all).text, temp.file("a"));
  EXPECT_EQ(check_cache(Variables::of({{"XDG_CACHE_HOME", temp.file("b")}})).text,
            temp.file("b/preload"));
  EXPECT_EQ(check_cache(Variables::of({{"HOME", temp.path()}})).text, temp.file(".cache/preload"));
}

TEST(CacheCheck, WarnsOfAHomeThatCannotBeWrittenOrIsNotSet) {
  EXPECT_EQ(check_cache({}).grade, Grade::kWarn);
  const TempDir temp;
  std::ofstream(temp.file("file")) << "";  // nobody makes anything in it, root included
  const Check check = check_cache(Variables::of({{"HOME", temp.file("file")}}));
  EXPECT_EQ(check.grade, Grade::kWarn);
  EXPECT_THAT(check.remedy, HasSubstr("PRELOAD_CACHE_ROOT"));
}

TEST(TmpdirCheck, WantsAShortDirectoryThatCanBeWritten) {
  const TempDir temp;
  EXPECT_EQ(check_tmpdir({}).grade, Grade::kOk);
  EXPECT_EQ(check_tmpdir(Variables::of({{"TMPDIR", temp.path()}})).grade, Grade::kOk);
  EXPECT_EQ(check_tmpdir(Variables::of({{"TMPDIR", temp.file("none")}})).grade, Grade::kWarn);
  std::ofstream(temp.file("file")) << "";
  EXPECT_EQ(check_tmpdir(Variables::of({{"TMPDIR", temp.file("file")}})).grade, Grade::kWarn);
  const std::string deep = temp.file(std::string(100, 'x'));
  std::filesystem::create_directory(deep);
  const Check check = check_tmpdir(Variables::of({{"TMPDIR", deep}}));
  EXPECT_EQ(check.grade, Grade::kWarn);
  EXPECT_THAT(check.text, HasSubstr("107"));
}

TEST(LibraryPathCheck, WarnsOfAListThatMakesEveryStartSlow) {
  EXPECT_EQ(check_library_path({}).grade, Grade::kOk);
  std::string list = "/a";
  for (int i = 0; i < 199; ++i) list += ":/a";
  const Check check = check_library_path(Variables::of({{"LD_LIBRARY_PATH", list}}));
  EXPECT_EQ(check.grade, Grade::kWarn);
  EXPECT_THAT(check.text, HasSubstr("200 entries"));
}

TEST(LibraryPathCheck, RefusesTheToolkitsStubOfTheDriver) {
  const TempDir temp;
  std::filesystem::create_directories(temp.file("lib64/stubs"));
  const Variables variables =
      Variables::of({{"LD_LIBRARY_PATH", "/a::" + temp.file("lib64/stubs")}});
  EXPECT_EQ(check_library_path(variables).grade, Grade::kOk);
  std::ofstream(temp.file("lib64/stubs/libcuda.so.1")) << "";
  EXPECT_EQ(check_library_path(variables).grade, Grade::kFail);
}

// As root may search every folder, a link to itself stands for what cannot be looked into.
TEST(UserChecks, GoOnWhereAFolderCannotBeLookedInto) {
  const TempDir temp;
  const std::string loop = temp.file("loop");
  std::filesystem::create_symlink(loop, loop);
  EXPECT_EQ(check_library_path(Variables::of({{"LD_LIBRARY_PATH", loop + ":/a"}})).grade,
            Grade::kOk);
  const Check tmpdir = check_tmpdir(Variables::of({{"TMPDIR", loop}}));
  EXPECT_EQ(tmpdir.grade, Grade::kWarn);
  EXPECT_THAT(tmpdir.text, HasSubstr("ELOOP"));
  EXPECT_EQ(check_cache(Variables::of({{"HOME", loop}})).grade, Grade::kOk) << "made beside it";
}

}  // namespace
}  // namespace preload::doctor
