// SPDX-License-Identifier: Apache-2.0
#include "artifact/disk_tier.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "artifact/held_file.hpp"
#include "base/bytes.hpp"
#include "base/cancel.hpp"
#include "support/temp_dir.hpp"
#include "unit/artifact/log_lines.hpp"

namespace preload::artifact {
namespace {

using test::ScopedEnv;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Environment kHere{{"gpu", "H200"}, {"driver", "580"}};
const Environment kElsewhere{{"gpu", "H200"}, {"driver", "570"}};
const Key kKey{"nccl_tuner", "c0", "table.json"};

class DiskTierTest : public testing::Test {
 protected:
  std::string file(const Key& key) const {
    return "cache/" + key.kind + "/" + key.config_hash + "/" + key.filename;
  }
  // All names below the root, hidden ones too, without the lock.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_ / "cache")) {
      if (entry.path().filename() != ".lock") names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
  // As if every record of the key had last been of use `age_s` ago.
  void age(const Key& key, std::time_t age_s) const {
    const timespec then{::time(nullptr) - age_s, 0};
    const timespec times[2] = {then, then};
    const std::filesystem::path folder =
        std::filesystem::path(directory_ / file(key)).parent_path();
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with("." + key.filename)) {
        ASSERT_EQ(::utimensat(AT_FDCWD, entry.path().c_str(), times, 0), 0);
      }
    }
  }

  TempDir directory_;
  DiskTier tier_{directory_ / "cache"};
};

TEST_F(DiskTierTest, GivesBackWhatWasPutWithAllThatWasSaidOfIt) {
  const Metadata metadata{kHere, {{"model", "llama"}}};
  EXPECT_EQ(tier_.put_bytes(kKey, "content", metadata), Put::kStored);
  const auto found = tier_.get(kKey, kHere);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->text(), "content");
  EXPECT_EQ(found->path, directory_ / file(kKey));
  EXPECT_EQ(found->entry.key, kKey);
  EXPECT_EQ(found->entry.bytes, 7U);
  // printf content | sha256sum
  EXPECT_EQ(found->entry.sha256,
            "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73");
  EXPECT_EQ(found->entry.metadata, metadata);
  EXPECT_LE(std::abs(found->entry.created - ::time(nullptr)), 600);
}

TEST_F(DiskTierTest, AStopEndsAWriteInTheMiddleAndTheOlderEntryStays) {
  tier_.put_bytes(kKey, "older", {kHere, {}});
  const auto before = names();
  Cancel cancel;
  DiskTier stopped(directory_ / "cache", {}, &cancel);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd from(ends[0]), to(ends[1]);
  std::thread writer([&] {  // who would go on for ever
    std::vector<std::byte> some(kMiB);
    write_full(to.get(), some, "the pipe");
    cancel.request({130, "stopped"});
    ::fcntl(to.get(), F_SETFL, O_NONBLOCK);  // wakes a reader, waits for none
    static_cast<void>(!::write(to.get(), some.data(), 1));
  });
  EXPECT_THROW(stopped.put(kKey, from.get(), {kHere, {}}, Overwrite::kSameEnvironment), Cancelled);
  writer.join();
  EXPECT_EQ(names(), before);
  EXPECT_EQ(tier_.get(kKey, kHere)->text(), "older");
  EXPECT_THROW(stopped.get(kKey, kHere), Cancelled);
}

TEST_F(DiskTierTest, AnEntryIsAPlainFileThatOthersCannotRead) {
  tier_.put_bytes(kKey, "content", {kHere, {}});
  EXPECT_EQ(directory_.read(file(kKey)), "content");
  struct stat status {};
  ASSERT_EQ(::stat((directory_ / "cache").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0700U);
  ASSERT_EQ(::stat((directory_ / file(kKey)).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
}

TEST_F(DiskTierTest, WhatIsNotThereIsASilentMiss) {
  EXPECT_THAT(log_lines_of([&] { EXPECT_FALSE(tier_.get(kKey, kHere)); }), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "cache"));
}

TEST_F(DiskTierTest, AnotherEnvironmentIsAMissThatSaysWhatDiffers) {
  tier_.put_bytes(kKey, "content", {kElsewhere, {}});
  EXPECT_THAT(log_lines_of([&] { EXPECT_FALSE(tier_.get(kKey, kHere)); }),
              ElementsAre(HasSubstr("driver 570 (580 here)")));
}

TEST_F(DiskTierTest, ARanksEntryOfAnotherEnvironmentIsNamedToo) {
  const Key old{"nccl_tuner", "c0", rank_filename({}, kElsewhere, "json")};
  const Key now{"nccl_tuner", "c0", rank_filename({}, kHere, "json")};
  tier_.put_bytes(old, "content", {kElsewhere, {}});
  EXPECT_THAT(log_lines_of([&] { EXPECT_FALSE(tier_.get(now, kHere)); }),
              ElementsAre(HasSubstr("driver 570 (580 here)")));
  // Both are kept: a driver that is put back finds its own again.
  EXPECT_EQ(tier_.put_bytes(now, "newer", {kHere, {}}), Put::kStored);
  EXPECT_EQ(tier_.get(old, kElsewhere)->text(), "content");
  EXPECT_EQ(tier_.get(now, kHere)->text(), "newer");
}

TEST_F(DiskTierTest, AConflictIsNeverOverwritten) {
  tier_.put_bytes(kKey, "first", {kHere, {}});
  EXPECT_THAT(log_lines_of([&] {
                EXPECT_EQ(tier_.put_bytes(kKey, "second", {kHere, {}}), Put::kConflict);
              }),
              ElementsAre(HasSubstr("its content differs from ours")));
  for (const auto overwrite : {Overwrite::kNever, Overwrite::kSameEnvironment}) {
    EXPECT_THAT(
        log_lines_of([&] {
          EXPECT_EQ(tier_.put_bytes(kKey, "third", {kElsewhere, {}}, overwrite), Put::kConflict);
        }),
        ElementsAre(HasSubstr("driver 580 (570 here)")));
  }
  EXPECT_EQ(tier_.get(kKey, kHere)->text(), "first");
}

TEST_F(DiskTierTest, TheSameAgainIsThereAlready) {
  tier_.put_bytes(kKey, "same", {kHere, {}});
  EXPECT_THAT(log_lines_of([&] {
                EXPECT_EQ(tier_.put_bytes(kKey, "same", {kHere, {}}), Put::kPresent);
              }),
              IsEmpty());
}

TEST_F(DiskTierTest, ANewerContentReplacesWhereThatIsAllowed) {
  tier_.put_bytes(kKey, "older", {kHere, {}});
  const auto before = tier_.get(kKey, kHere);
  EXPECT_EQ(tier_.put_bytes(kKey, "newer", {kHere, {}}, Overwrite::kSameEnvironment), Put::kStored);
  EXPECT_EQ(tier_.get(kKey, kHere)->text(), "newer");
  EXPECT_EQ(before->text(), "older");  // whoever has it goes on with it
  EXPECT_EQ(names().size(), 4U);       // kind, config, content, one record
}

TEST_F(DiskTierTest, ATruncatedEntryIsAMissAndIsReplaced) {
  tier_.put_bytes(kKey, "content", {kHere, {}});
  directory_.truncate(file(kKey), 3);
  EXPECT_THAT(log_lines_of([&] { EXPECT_FALSE(tier_.get(kKey, kHere)); }),
              ElementsAre(HasSubstr("it has 3 of the 7 bytes that were written")));
  EXPECT_THAT(tier_.list(), IsEmpty());
  EXPECT_EQ(tier_.put_bytes(kKey, "again", {kHere, {}}), Put::kStored);
  EXPECT_EQ(tier_.get(kKey, kHere)->text(), "again");
}

TEST_F(DiskTierTest, AFlippedBitIsAMissWhateverTheLength) {
  tier_.put_bytes(kKey, "content", {kHere, {}});
  directory_.flip_byte(file(kKey), 2);
  EXPECT_THAT(log_lines_of([&] { EXPECT_FALSE(tier_.get(kKey, kHere)); }),
              ElementsAre(HasSubstr("its content is not the one that was written")));
  EXPECT_THAT(tier_.check().damages, testing::SizeIs(1));
}

TEST_F(DiskTierTest, AContentWithoutItsRecordIsNoEntry) {
  directory_.write(file(kKey), "of whom?");
  EXPECT_THAT(log_lines_of([&] { EXPECT_FALSE(tier_.get(kKey, kHere)); }),
              ElementsAre(HasSubstr("nothing is recorded of it")));
}

TEST_F(DiskTierTest, ALinkInAnEntrysPlaceIsNotFollowed) {
  directory_.write("secret", "secret");
  directory_.make_directory("cache/nccl_tuner/c0");
  directory_.link(file(kKey), directory_ / "secret");
  EXPECT_THAT(log_lines_of([&] { EXPECT_FALSE(tier_.get(kKey, kHere)); }), testing::SizeIs(1));
}

TEST_F(DiskTierTest, AFolderThatEveryoneMayWriteToIsNotTrusted) {
  tier_.put_bytes(kKey, "content", {kHere, {}});
  ASSERT_EQ(::chmod((directory_ / "cache").c_str(), 0777), 0);
  EXPECT_THAT(log_lines_of([&] { EXPECT_FALSE(tier_.get(kKey, kHere)); }),
              ElementsAre(HasSubstr("may be written to by everyone")));
}

TEST_F(DiskTierTest, KeysThatLeadOutAreRefused) {
  const Key out{"..", "..", "etc"};
  EXPECT_THAT(log_lines_of([&] {
                EXPECT_EQ(tier_.put_bytes(out, "x", {kHere, {}}), Put::kFailed);
                EXPECT_FALSE(tier_.get(out, kHere));
              }),
              testing::SizeIs(2));
}

TEST_F(DiskTierTest, ListsByKindAndKey) {
  tier_.put_bytes({"b", "c0", "1"}, "x", {kHere, {}});
  tier_.put_bytes({"a", "c1", "1"}, "xy", {kHere, {}});
  tier_.put_bytes({"a", "c0", "2"}, "xyz", {kHere, {}});
  std::vector<std::string> keys;
  for (const Entry& entry : tier_.list()) keys.push_back(entry.key.text());
  EXPECT_THAT(keys, ElementsAre("vllm-warmup-cache/a/c0/2", "vllm-warmup-cache/a/c1/1",
                                "vllm-warmup-cache/b/c0/1"));
  EXPECT_THAT(tier_.list("a"), testing::SizeIs(2));
}

TEST_F(DiskTierTest, PastTheLimitsTheLongestUnusedGoes) {
  DiskTier small(directory_ / "cache", {.bytes = 100, .entries = 2});
  const Key first{"k", "c0", "first"};
  const Key second{"k", "c0", "second"};
  const Key third{"k", "c1", "third"};
  small.put_bytes(first, "x", {kHere, {}});
  small.put_bytes(second, "x", {kHere, {}});
  age(first, 200);
  age(second, 100);
  EXPECT_TRUE(small.get(first, kHere));  // of use just now
  small.put_bytes(third, "x", {kHere, {}});
  EXPECT_TRUE(small.get(first, kHere));
  EXPECT_FALSE(small.get(second, kHere));
  EXPECT_TRUE(small.get(third, kHere));
}

TEST_F(DiskTierTest, LimitsCountBytesAndKeepWhatWasJustStored) {
  DiskTier small(directory_ / "cache", {.bytes = 100, .entries = 1000});
  const Key large{"k", "c0", "large"};
  small.put_bytes({"k", "c0", "a"}, std::string(60, 'x'), {kHere, {}});
  age({"k", "c0", "a"}, 100);
  small.put_bytes(large, std::string(200, 'x'), {kHere, {}});
  EXPECT_THAT(small.list(), testing::SizeIs(1));
  EXPECT_TRUE(small.get(large, kHere));
}

TEST_F(DiskTierTest, PruningTakesTheOldTheDamagedAndEmptyFolders) {
  const Key old{"k", "c0", "old"};
  const Key damaged{"k", "c1", "damaged"};
  const Key good{"k", "c2", "good"};
  for (const Key& key : {old, damaged, good}) tier_.put_bytes(key, "content", {kHere, {}});
  age(old, 1000);
  directory_.truncate(file(damaged), 1);
  EXPECT_THAT(tier_.prune({.unused_s = 500}).keys, testing::UnorderedElementsAre(old, damaged));
  EXPECT_THAT(names(), testing::SizeIs(4));  // kind, config, content, record
  EXPECT_TRUE(tier_.get(good, kHere));
}

TEST_F(DiskTierTest, PruningTouchesOnlyWhatIsMeant) {
  const Key other{"k", "c0", "other"};
  const Key third{"k", "c0", "third"};
  for (const Key& key : {kKey, other, third}) tier_.put_bytes(key, "content", {kHere, {}});
  const auto pruned = tier_.prune({.selection = {.keys = {third}}, .all = true});
  EXPECT_THAT(pruned.keys, ElementsAre(third));
  EXPECT_EQ(pruned.bytes, 7U);
  EXPECT_THAT(tier_.prune({.selection = {.kind = "k"}, .all = true}).keys, ElementsAre(other));
  EXPECT_TRUE(tier_.get(kKey, kHere));
  EXPECT_THAT(tier_.prune({.selection = {.keys = {third}}, .all = true}).keys, IsEmpty());
}

TEST_F(DiskTierTest, WhatAJobHoldsIsNotPruned) {
  const Key other{"k", "c", "other"};
  tier_.put_bytes(kKey, "content", {kHere, {}});
  tier_.put_bytes(other, "x", {kHere, {}});
  age(kKey, 1000);
  Fd held = hold_file(tier_.get(kKey, kHere)->path);
  ASSERT_TRUE(held);
  age(kKey, 1000);
  const auto unused = tier_.prune({.unused_s = 500});
  EXPECT_THAT(unused.keys, IsEmpty());
  EXPECT_THAT(unused.in_use, ElementsAre(kKey));
  const auto all = tier_.prune({.all = true});
  EXPECT_THAT(all.keys, ElementsAre(other));
  EXPECT_THAT(all.in_use, ElementsAre(kKey));
  EXPECT_EQ(tier_.get(kKey, kHere)->text(), "content");
  held.reset();
  EXPECT_THAT(tier_.prune({.all = true}).keys, ElementsAre(kKey));
}

TEST_F(DiskTierTest, PastTheLimitsWhatAJobHoldsStays) {
  DiskTier tier(directory_ / "cache", {.bytes = kMiB, .entries = 1});
  tier.put_bytes(kKey, "content", {kHere, {}});
  const Fd held = hold_file(tier.get(kKey, kHere)->path);
  age(kKey, 1000);
  tier.put_bytes({"k", "c", "next"}, "x", {kHere, {}});
  EXPECT_TRUE(tier.get(kKey, kHere));
  EXPECT_TRUE(tier.get({"k", "c", "next"}, kHere));
}

TEST_F(DiskTierTest, WhatIsGoneCannotBeHeld) {
  EXPECT_FALSE(hold_file(directory_ / "cache/no/such/file"));
}

TEST_F(DiskTierTest, LiesBelowTheCacheRoot) {
  const ScopedEnv root("PRELOAD_CACHE_ROOT", (directory_ / "root").c_str());
  DiskTier tier;
  EXPECT_EQ(tier.root(), directory_ / "root/vllm-warmup-cache");
  EXPECT_EQ(tier.put_bytes(kKey, "content", {kHere, {}}), Put::kStored);
  EXPECT_EQ(directory_.read("root/vllm-warmup-cache/nccl_tuner/c0/table.json"), "content");
}

TEST_F(DiskTierTest, WithoutACacheRootEverythingMissesAndTheWorkGoesOn) {
  const ScopedEnv root("PRELOAD_CACHE_ROOT", nullptr);
  const ScopedEnv cache("XDG_CACHE_HOME", nullptr);
  const ScopedEnv home("HOME", nullptr);
  DiskTier tier;
  EXPECT_FALSE(tier.get(kKey, kHere));
  EXPECT_THAT(log_lines_of([&] {
                EXPECT_EQ(tier.put_bytes(kKey, "content", {kHere, {}}), Put::kFailed);
              }),
              ElementsAre(HasSubstr("PRELOAD_CACHE_ROOT")));
}

}  // namespace
}  // namespace preload::artifact
