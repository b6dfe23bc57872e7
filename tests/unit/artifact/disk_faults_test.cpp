// SPDX-License-Identifier: Apache-2.0
// What disks, other jobs and -9 do to an entry: it is whole or it is not there.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "artifact/disk_tier.hpp"
#include "artifact/staged_file.hpp"
#include "support/temp_dir.hpp"
#include "unit/artifact/child.hpp"
#include "unit/artifact/log_lines.hpp"

namespace preload::artifact {
namespace {

using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::size_t kLarge = 8 << 20;
const Environment kHere{{"gpu", "H200"}};
const Key kKey{"nccl_tuner", "c0", "table.json"};

std::vector<std::string> temporaries(const std::string& root) {
  std::vector<std::string> names;
  std::error_code gone;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root, gone)) {
    if (is_temporary(entry.path().filename())) names.push_back(entry.path());
  }
  return names;
}

class DiskFaults : public testing::Test {
 protected:
  DiskTier tier() { return DiskTier(root_); }
  // The entry is the good one of before, and nothing else lies there.
  void expect_intact() {
    DiskTier tier(root_);
    const auto found = tier.get(kKey, kHere);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->text(), "good");
    EXPECT_THAT(temporaries(root_), IsEmpty());
    EXPECT_THAT(tier.check().damages, IsEmpty());
  }

  TempDir directory_;
  const std::string root_ = directory_ / "cache";
};

TEST_F(DiskFaults, AFileThatMayNotGrowLeavesTheOlderEntryAsItWas) {
  ASSERT_EQ(tier().put_bytes(kKey, "good", {kHere, {}}), Put::kStored);
  Child child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 98;
    // Through a pipe: a memfd would be over the limit itself.
    std::array<int, 2> pipe{};
    if (::pipe(pipe.data()) != 0) return 98;
    Child writer([&] {
      const std::string block(1 << 16, 'x');
      for (std::size_t done = 0; done < kLarge; done += block.size()) {
        if (::write(pipe[1], block.data(), block.size()) < 0) return 1;
      }
      return 0;
    });
    ::close(pipe[1]);
    DiskTier tier(root_);
    const Put put = tier.put(kKey, pipe[0], {kHere, {}}, Overwrite::kSameEnvironment);
    return put == Put::kFailed ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  expect_intact();
}

// In a mount namespace of the child's own; nothing where that is not allowed.
bool mount_small_disk(const std::string& directory) {
  if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("tmpfs", directory.c_str(), "tmpfs", 0, "size=1m,mode=0700") == 0;
}

TEST_F(DiskFaults, AFullDiskLeavesTheOlderEntryAsItWasAndOneLine) {
  directory_.make_directory("disk");
  constexpr int kNotAllowed = 97;
  Child child([&] {
    if (!mount_small_disk(directory_ / "disk")) return kNotAllowed;
    DiskTier tier(directory_ / "disk/cache");
    if (tier.put_bytes(kKey, "good", {kHere, {}}) != Put::kStored) return 1;
    Put put = Put::kStored;
    const auto lines = log_lines_of([&] {
      put =
          tier.put_bytes(kKey, std::string(kLarge, 'x'), {kHere, {}}, Overwrite::kSameEnvironment);
    });
    if (put != Put::kFailed) return 2;
    if (lines.size() != 1 || lines.front().find("ENOSPC") == std::string::npos) return 3;
    const auto found = tier.get(kKey, kHere);
    if (!found || found->text() != "good") return 4;
    if (!temporaries(tier.root()).empty()) return 5;
    // The work goes on, and what fits is stored.
    return tier.put_bytes({"k", "c", "small"}, "x", {kHere, {}}) == Put::kStored ? 0 : 6;
  });
  const int status = child.wait();
  if (status == kNotAllowed) {
    ASSERT_EQ(std::getenv("PRELOAD_REQUIRE_CLUSTER"), nullptr);
    GTEST_SKIP() << "no mount namespace for a small disk: needs root or user namespaces";
  }
  EXPECT_EQ(status, 0);
}

TEST_F(DiskFaults, AFolderThatIsNotOursToWriteToLeavesOneLine) {
  ASSERT_EQ(tier().put_bytes(kKey, "good", {kHere, {}}), Put::kStored);
  for (const char* folder : {"cache/nccl_tuner/c0", "cache/nccl_tuner", "cache"}) {
    ASSERT_EQ(::chmod((directory_ / folder).c_str(), 0555), 0);
  }
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  Child child([&] {
    // Root may write anywhere.
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return 98;
    DiskTier tier(root_);
    Put put = Put::kStored;
    const auto lines = log_lines_of([&] {
      put = tier.put_bytes({"k", "c", "x"}, "x", {kHere, {}});
    });
    return put == Put::kFailed && lines.size() == 1 ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0);
  for (const char* folder : {"cache", "cache/nccl_tuner", "cache/nccl_tuner/c0"}) {
    ASSERT_EQ(::chmod((directory_ / folder).c_str(), 0700), 0);
  }
  expect_intact();
}

TEST_F(DiskFaults, OfManyJobsThatWriteOneKeyAtOnceOneWins) {
  constexpr int kWriters = 8;
  constexpr int kConflict = 10;
  std::array<int, 2> gate{};
  ASSERT_EQ(::pipe2(gate.data(), O_CLOEXEC), 0);
  std::vector<std::unique_ptr<Child>> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.push_back(std::make_unique<Child>([&, i] {
      ::close(gate[1]);
      char byte = 0;
      if (::read(gate[0], &byte, 1) != 0) return 98;  // until the gate opens for all
      const std::string content(1 << 20, static_cast<char>('a' + i));
      DiskTier tier(root_);
      const Put put = tier.put_bytes(kKey, content, {kHere, {}});
      return put == Put::kStored ? i : put == Put::kConflict ? kConflict : 97;
    }));
  }
  ::close(gate[0]);
  ::close(gate[1]);
  std::vector<int> winners;
  for (const auto& writer : writers) {
    const int status = writer->wait();
    if (status != kConflict) winners.push_back(status);
  }
  ASSERT_EQ(winners.size(), 1U);
  ASSERT_LT(winners.front(), kWriters);
  const auto found = tier().get(kKey, kHere);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->text(), std::string(1 << 20, static_cast<char>('a' + winners.front())));
  EXPECT_THAT(temporaries(root_), IsEmpty());
}

TEST_F(DiskFaults, ReadersSeeTheOldOrTheNewWhileAnEntryIsReplaced) {
  constexpr int kVersions = 40;
  ASSERT_EQ(tier().put_bytes(kKey, std::string(1 << 16, 'a'), {kHere, {}}), Put::kStored);
  Child writer([&] {
    DiskTier tier(root_);
    for (int i = 0; i < kVersions; ++i) {
      const std::string content(1 << 16, i % 2 == 0 ? 'b' : 'a');
      const Put put = tier.put_bytes(kKey, content, {kHere, {}}, Overwrite::kSameEnvironment);
      if (put != Put::kStored) return 1;
    }
    return 0;
  });
  DiskTier reader(root_);
  for (int i = 0; i < 4 * kVersions; ++i) {
    // Two replacements within one reading are a miss, never a mixture.
    const auto found = reader.get(kKey, kHere);
    if (!found) continue;
    const std::string text = found->text();
    ASSERT_EQ(text, std::string(1 << 16, text.front()));
  }
  EXPECT_EQ(writer.wait(), 0);
  EXPECT_EQ(reader.get(kKey, kHere)->text(), std::string(1 << 16, 'a'));
}

TEST_F(DiskFaults, WhatAKilledWriterLeftGoesWithTheNextWrite) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  Child writer([&] {
    ::close(pipe[1]);
    DiskTier tier(root_);
    tier.put(kKey, pipe[0], {kHere, {}});  // of which the end never comes
    return 0;
  });
  ASSERT_EQ(::write(pipe[1], "half", 4), 4);
  ASSERT_TRUE(wait_until([&] {
    const auto left = temporaries(root_);
    std::error_code gone;
    return left.size() == 1 && std::filesystem::file_size(left.front(), gone) == 4;
  }));
  // One that is at work is left alone.
  EXPECT_EQ(tier().put_bytes({"nccl_tuner", "c0", "other"}, "x", {kHere, {}}), Put::kStored);
  EXPECT_THAT(temporaries(root_), testing::SizeIs(1));
  writer.kill();
  EXPECT_EQ(writer.wait(), 137);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_FALSE(tier().get(kKey, kHere));
  EXPECT_EQ(tier().put_bytes(kKey, "good", {kHere, {}}), Put::kStored);
  expect_intact();
}

// Cleans up in a folder, over and over, while others write there.
class Cleaner {
 public:
  explicit Cleaner(std::function<void()> clean)
      : thread_([this, clean = std::move(clean)] {
          while (!over_) clean();
        }) {}
  ~Cleaner() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

TEST_F(DiskFaults, ACleanerNeverTakesAWritersTemporaryFile) {
  constexpr int kFiles = 2000;
  directory_.make_directory("folder");
  const Fd folder =
      open_fd(AT_FDCWD, directory_ / "folder", O_RDONLY | O_DIRECTORY, 0, Errc::kInternal);
  const Cleaner cleaner([&] { remove_stale_temporaries(folder.get()); });
  for (int i = 0; i < kFiles; ++i) {
    StagedFile file(folder.get());
    ASSERT_NO_THROW(file.replace("entry")) << i;
  }
}

TEST_F(DiskFaults, ACrashBetweenRecordAndContentLosesNothing) {
  ASSERT_EQ(tier().put_bytes(kKey, "good", {kHere, {}}), Put::kStored);
  // What a writer of "newer" leaves when it ends after the record.
  directory_.write("cache/nccl_tuner/c0/.table.json.0123456789abcdef.meta", R"({"version": 1})");
  expect_intact();
  EXPECT_EQ(tier().put_bytes(kKey, "newer", {kHere, {}}, Overwrite::kSameEnvironment),
            Put::kStored);
  EXPECT_FALSE(std::filesystem::exists(directory_ /
                                       "cache/nccl_tuner/c0/.table.json.0123456789abcdef.meta"));
}

}  // namespace
}  // namespace preload::artifact
