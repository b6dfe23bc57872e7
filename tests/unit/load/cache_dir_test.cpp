// SPDX-License-Identifier: Apache-2.0
#include "load/cache_dir.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/temp_dir.hpp"

namespace preload {
namespace {

using test::ScopedEnv;
using test::TempDir;
using testing::UnorderedElementsAre;

class CacheDir : public testing::Test {
 protected:
  // An entry that was last of use `age_s` ago.
  void add(const std::string& name, std::size_t bytes, std::time_t age_s) {
    cache_.write("entries/" + name, std::string(bytes, 'x'));
    const timespec then{::time(nullptr) - age_s, 0};
    const timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, (cache_ / ("entries/" + name)).c_str(), times, 0), 0);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& file : std::filesystem::directory_iterator(cache_ / "entries")) {
      names.push_back(file.path().filename().string());
    }
    return names;
  }

  TempDir cache_;
  ScopedEnv root_{"PRELOAD_CACHE_ROOT", cache_.path().c_str()};
  Fd folder_ = open_cache_dir("entries", true);
};

TEST_F(CacheDir, DropsWhatWasOfUseLongestAgo) {
  add("old", 1, 300);
  add("middle", 1, 200);
  add("new", 1, 100);
  prune_cache(folder_.get(), {.entries = 2, .bytes = 100});
  EXPECT_THAT(names(), UnorderedElementsAre("middle", "new"));
}

TEST_F(CacheDir, UseKeepsAnEntry) {
  add("old", 1, 300);
  add("new", 1, 100);
  mark_used(folder_.get(), "old");
  prune_cache(folder_.get(), {.entries = 1, .bytes = 100});
  EXPECT_THAT(names(), UnorderedElementsAre("old"));
}

TEST_F(CacheDir, CountsBytesAndKeepsTheNewestWhateverItsSize) {
  add("old", 10, 300);
  add("middle", 10, 200);
  add("new", 50, 100);
  prune_cache(folder_.get(), {.entries = 10, .bytes = 65});
  EXPECT_THAT(names(), UnorderedElementsAre("middle", "new"));
  prune_cache(folder_.get(), {.entries = 10, .bytes = 20});
  EXPECT_THAT(names(), UnorderedElementsAre("new"));
}

TEST_F(CacheDir, RemovesTemporaryFilesOfProcessesThatEnded) {
  add(".entry.1.tmp", 5, 7200);
  add(".entry.2.tmp", 5, 10);  // being written
  add("entry", 5, 10);
  cache_.make_directory("entries/folder");
  prune_cache(folder_.get(), {.entries = 10, .bytes = 100});
  EXPECT_THAT(names(), UnorderedElementsAre(".entry.2.tmp", "entry", "folder"));
}

}  // namespace
}  // namespace preload
