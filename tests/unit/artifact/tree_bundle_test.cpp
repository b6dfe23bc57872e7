// SPDX-License-Identifier: Apache-2.0
#include "artifact/tree_bundle.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <thread>
#include <vector>

#include "artifact/staged_tree.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "support/temp_dir.hpp"
#include "unit/artifact/child.hpp"
#include "unit/artifact/tar_file.hpp"

namespace preload::artifact {
namespace {

namespace fs = std::filesystem;
using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

Fd scratch() { return make_memfd("bundle", 0); }

Fd holding(std::string_view bytes) {
  Fd fd = scratch();
  write_full(fd.get(), std::as_bytes(std::span(bytes)), "a bundle");
  return fd;
}

std::string content_of(int fd) {
  ::lseek(fd, 0, SEEK_SET);
  return read_all(fd, "a bundle", 64 << 20);
}

// Path → content, "-> target" or "/" below a directory.
std::map<std::string, std::string> tree_of(const std::string& directory) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    const std::string path =
        fs::relative(entry.path().parent_path(), directory) / entry.path().filename();
    const std::string name = fs::path(path).lexically_normal();
    if (entry.is_symlink()) {
      tree[name] = "-> " + fs::read_symlink(entry.path()).string();
    } else if (entry.is_directory()) {
      tree[name] = "/";
    } else {
      const Fd fd = open_fd(AT_FDCWD, entry.path(), O_RDONLY, 0, Errc::kInternal);
      tree[name] = read_all(fd.get(), name, 64 << 20);
    }
  }
  return tree;
}

class TreeBundle : public testing::Test {
 protected:
  void SetUp() override {
    if (!bundles_problem().empty()) GTEST_SKIP() << bundles_problem();
  }
  std::string bundle(const std::string& directory, const BundleLimits& limits = {}) const {
    const Fd out = scratch();
    write_bundle(directory_ / directory, out.get(), limits);
    return content_of(out.get());
  }
  BundleSummary extract(std::string_view bytes, const BundleLimits& limits = {}) const {
    return extract_bundle(holding(bytes).get(), directory_ / "out", limits);
  }
  // That it is refused with this text, and that nothing of it is to be seen anywhere.
  void expect_refused(std::string_view bytes, const std::string& text,
                      const BundleLimits& limits = {}) const {
    fs::remove_all(directory_ / "out");
    directory_.write("out/mine", "as it was");
    try {
      extract(bytes, limits);
      ADD_FAILURE() << "taken; wanted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kCheckpoint) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
    EXPECT_THAT(tree_of(directory_.path()),
                ElementsAre(Pair("out", "/"), Pair("out/mine", "as it was")));
  }

  TempDir directory_;
};

TEST_F(TreeBundle, GivesTheTreeBack) {
  directory_.write("in/kernel/a.cubin", std::string("\0binary\xff", 8));
  directory_.write("in/kernel/deep/b.json", "{}");
  directory_.write("in/empty", "");
  directory_.write("in/t\xc3\xa4st", "a name that is not ASCII");
  directory_.write("in/" + std::string(200, 'n'), "a long name");
  directory_.make_directory("in/nothing");
  directory_.link("in/kernel/latest", "deep/b.json");
  directory_.link("in/kernel/deep/up", "../a.cubin");
  const BundleSummary summary = extract(bundle("in"));
  EXPECT_EQ(summary.files, 5U);
  EXPECT_EQ(summary.skipped, 0U);
  EXPECT_EQ(tree_of(directory_ / "out"), tree_of(directory_ / "in"));
}

TEST_F(TreeBundle, KeepsWhatMayBeExecutedAndNoOtherBits) {
  directory_.write("in/run", "#!");
  directory_.write("in/read", "x");
  ASSERT_EQ(::chmod((directory_ / "in/run").c_str(), 04755), 0);
  ASSERT_EQ(::chmod((directory_ / "in/read").c_str(), 0666), 0);
  extract(bundle("in"));
  struct stat status {};
  ASSERT_EQ(::stat((directory_ / "out/run").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07100U, 0100U);
  ASSERT_EQ(::stat((directory_ / "out/read").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07111U, 0U);
}

TEST_F(TreeBundle, TheSameTreeGivesTheSameBytes) {
  directory_.write("in/a/1", "one");
  directory_.write("in/a-b", "two");
  directory_.write("in/c", "three");
  directory_.write("again/c", "three");
  directory_.write("again/a-b", "two");
  directory_.write("again/a/1", "one");
  const timespec old[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (directory_ / "again/c").c_str(), old, 0), 0);
  ASSERT_EQ(::chmod((directory_ / "again/c").c_str(), 0600), 0);
  EXPECT_EQ(bundle("in"), bundle("again"));
  directory_.write("again/c", "threE");
  EXPECT_NE(bundle("in"), bundle("again"));
}

TEST_F(TreeBundle, LeavesOutWhatIsOfNoUseElsewhere) {
  directory_.write("in/file", "x");
  directory_.link("in/out", "/etc/passwd");
  directory_.link("in/up", "../file");
  ASSERT_EQ(::mkfifo((directory_ / "in/fifo").c_str(), 0600), 0);
  const Fd out = scratch();
  const BundleSummary summary = write_bundle(directory_ / "in", out.get());
  EXPECT_EQ(summary.files, 1U);
  EXPECT_EQ(summary.skipped, 3U);
  EXPECT_THAT(summary.first_skipped, HasSubstr("'fifo' is neither a file nor a directory"));
  extract(content_of(out.get()));
  EXPECT_THAT(tree_of(directory_ / "out"), ElementsAre(Pair("file", "x")));
}

TEST_F(TreeBundle, MergesFileByFileAndOverwritesNothing) {
  directory_.write("in/a/new", "new");
  directory_.write("in/a/both", "theirs");
  directory_.write("in/b/x", "x");
  directory_.write("in/c", "a file");
  directory_.write("out/a/both", "ours");
  directory_.write("out/a/only", "ours");
  directory_.write("out/c/x", "a directory");
  const BundleSummary summary = extract(bundle("in"));
  EXPECT_EQ(summary.skipped, 2U);
  EXPECT_THAT(tree_of(directory_ / "out"),
              ElementsAre(Pair("a", "/"), Pair("a/both", "ours"), Pair("a/new", "new"),
                          Pair("a/only", "ours"), Pair("b", "/"), Pair("b/x", "x"), Pair("c", "/"),
                          Pair("c/x", "a directory")));
}

TEST_F(TreeBundle, DoesNotWriteThroughALinkInTheTree) {
  directory_.write("in/a/file", "x");
  directory_.make_directory("elsewhere");
  directory_.make_directory("out");
  directory_.link("out/a", "../elsewhere");
  EXPECT_EQ(extract(bundle("in")).skipped, 1U);
  EXPECT_THAT(tree_of(directory_ / "elsewhere"), IsEmpty());
}

TEST_F(TreeBundle, FollowsALinkThatIsTheDirectoryItself) {
  directory_.write("in/file", "x");
  directory_.make_directory("elsewhere");
  directory_.link("out", "elsewhere");
  extract(bundle("in"));
  EXPECT_THAT(tree_of(directory_ / "elsewhere"), ElementsAre(Pair("file", "x")));
}

TEST_F(TreeBundle, TakesATarOfAnotherMaker) {
  TarFile tar;
  tar.directory("d/").file("d/f", "content", 0755).symbolic_link("d/l", "f");
  extract(tar.finish());
  EXPECT_THAT(tree_of(directory_ / "out"),
              ElementsAre(Pair("d", "/"), Pair("d/f", "content"), Pair("d/l", "-> f")));
}

TEST_F(TreeBundle, RefusesPathsThatLeadOut) {
  for (const char* path : {"/etc/x", "../x", "a/../../x", "..", "./x", "a//x"}) {
    TarFile tar;
    expect_refused(tar.file("good", "x").file(path, "x").finish(), "is no path inside a tree");
  }
}

TEST_F(TreeBundle, RefusesLinksThatLeadOut) {
  for (const char* target : {"/etc", "..", "../x", "a/../../x", "x/.."}) {
    TarFile tar;
    expect_refused(tar.symbolic_link("l", target).finish(), "is a link out of the tree");
  }
  TarFile deeper;
  expect_refused(deeper.directory("d").symbolic_link("d/l", "../../x").finish(),
                 "is a link out of the tree");
}

TEST_F(TreeBundle, RefusesToWriteThroughItsOwnLinks) {
  TarFile through;
  expect_refused(through.directory("d").symbolic_link("l", "d").file("l/x", "x").finish(),
                 "lies in no directory that comes before it");
  TarFile over;
  expect_refused(over.symbolic_link("l", "d").file("l", "x").finish(), "is in it twice");
}

TEST_F(TreeBundle, RefusesHardLinksDevicesAndPipes) {
  TarFile hard;
  expect_refused(
      hard.file("f", "x").header({.name = "h", .type = '1', .link = "f", .bytes = 0}).finish(),
      "is a hard link");
  TarFile outside;
  expect_refused(
      outside.header({.name = "h", .type = '1', .link = "/etc/passwd", .bytes = 0}).finish(),
      "is a hard link");
  for (const char type : {'3', '4', '6'}) {
    TarFile tar;
    expect_refused(tar.header({.name = "dev", .type = type, .link = {}, .bytes = 0}).finish(),
                   "is neither a file nor a directory nor a symbolic link");
  }
}

TEST_F(TreeBundle, RefusesSetIdBits) {
  for (const unsigned mode : {04755U, 02755U, 06755U}) {
    TarFile tar;
    expect_refused(tar.file("f", "x", mode).finish(), "has a set-id bit");
  }
}

TEST_F(TreeBundle, RefusesDuplicatesAndFilesWithoutTheirDirectory) {
  TarFile twice;
  expect_refused(twice.file("f", "x").file("f", "y").finish(), "is in it twice");
  TarFile again;
  expect_refused(again.directory("d").directory("d/").finish(), "is in it twice");
  TarFile orphan;
  expect_refused(orphan.file("d/f", "x").finish(), "lies in no directory that comes before it");
  TarFile below;
  expect_refused(below.file("f", "x").file("f/g", "x").finish(),
                 "lies in no directory that comes before it");
}

TEST_F(TreeBundle, RefusesBombs) {
  TarFile large;
  expect_refused(large.file("f", std::string(2000, 'x')).finish(), "makes it larger than",
                 {.bytes = 1000});
  TarFile sum;
  expect_refused(sum.file("f", std::string(600, 'x')).file("g", std::string(600, 'x')).finish(),
                 "'g' makes it larger than", {.bytes = 1000});
  // A size that nothing backs: refused by the claim, before anything is written.
  TarFile claim;
  expect_refused(
      claim.header({.name = "f", .type = '0', .link = {}, .bytes = 077777777777}).finish(),
      "makes it larger than", {.bytes = 1 << 20});
  TarFile many;
  for (int i = 0; i < 20; ++i) many.file("f" + std::to_string(i), "");
  expect_refused(many.finish(), "is one of more than 10 entries", {.entries = 10});
  TarFile deep;
  std::string path;
  for (int i = 0; i < 6; ++i) deep.directory(path += "d/");
  expect_refused(deep.finish(), "lies deeper than 5 levels", {.depth = 5});
}

// GNU's sparse files claim a size and bring little data.
TEST_F(TreeBundle, RefusesSparseBombs) {
  std::string block(512, '\0');
  TarFile plain;
  plain.header({.name = "f", .type = 'S', .link = {}, .bytes = 512});
  block = plain.bytes();
  const auto put = [&](std::size_t at, const std::string& text) {
    std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(257, std::string("ustar  \0", 8));
  put(386, "77777770000");  // where the only piece lies
  put(398, "00000001000");  // how long it is
  put(483, "77777771000");  // the claimed size
  put(148, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char digits[8];
  std::snprintf(digits, sizeof digits, "%06o", sum);
  put(148, std::string(digits, 7));
  TarFile tar;
  expect_refused(tar.raw(block).raw(std::string(512, 'x')).finish(), "makes it larger than",
                 {.bytes = 1 << 20});
}

TEST_F(TreeBundle, RefusesWhatIsTruncatedOrNoTar) {
  TarFile tar;
  tar.file("f", std::string(3000, 'x')).file("g", "y");
  const std::string whole = tar.finish();
  for (const std::size_t length : {512U + 1000U, 600U, 300U}) {
    expect_refused(std::string_view(whole).substr(0, length), "the bundle is");
  }
  expect_refused("", "the bundle is broken");
  expect_refused(std::string(4096, 'z'), "the bundle is broken");
  std::string damaged = whole;
  damaged[512 + 3072 + 3] ^= 1;  // in the second header: its checksum is wrong
  expect_refused(damaged, "the bundle is broken");
}

TEST_F(TreeBundle, ShowsNoControlCharactersOfHostileNames) {
  TarFile tar;
  expect_refused(tar.file("../\x1b[31mred", "x").finish(), "'../?[31mred'");
}

TEST_F(TreeBundle, ATreePastTheLimitsIsNotWritten) {
  directory_.write("in/a/b/c", std::string(2000, 'x'));
  EXPECT_THROW(bundle("in", {.bytes = 1000}), Error);
  EXPECT_THROW(bundle("in", {.entries = 2}), Error);
  EXPECT_THROW(bundle("in", {.depth = 2}), Error);
  EXPECT_NO_THROW(bundle("in", {.bytes = 2000, .entries = 3, .depth = 3}));
  EXPECT_THROW(bundle("absent"), Error);
}

// Each cleans up what others left as it starts.
TEST_F(TreeBundle, ManyThatUnpackAtOnceTakeNothingFromEachOther) {
  constexpr int kWriters = 4;
  constexpr int kRounds = 100;
  std::atomic<int> failures = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      for (int k = 0; k < kRounds; ++k) {
        try {
          StagedTree tree(directory_ / "shared/out");
          write_file_at(tree.fd(), fmt::format("file{}", i), "x");
          if (!read_file_at(tree.fd(), fmt::format("file{}", i))) ++failures;
        } catch (const Error&) {
          ++failures;
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(failures, 0);
  EXPECT_TRUE(fs::is_empty(directory_ / "shared"));
}

TEST_F(TreeBundle, WhatAKilledProcessUnpackedGoesWithTheNextOne) {
  // A bundle from a pipe cannot be: a large one is stopped in the middle instead.
  TarFile tar;
  tar.directory("d");
  for (int i = 0; i < 300; ++i) tar.file("d/" + std::to_string(i), std::string(20000, 'x'));
  const std::string bytes = tar.finish();
  const auto staged = [&] {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_.path())) {
      if (entry.path().filename().string().starts_with(".out.tmp-")) {
        names.push_back(entry.path());
      }
    }
    return names;
  };
  Child child([&] {
    extract(bytes);
    return 0;
  });
  const bool begun =
      wait_until([&] { return !staged().empty() || fs::exists(directory_ / "out"); });
  child.kill();
  child.wait();
  ASSERT_TRUE(begun);
  // Killed before the rename, the place is empty; killed after, it is complete.
  if (fs::exists(directory_ / "out")) {
    EXPECT_EQ(tree_of(directory_ / "out").size(), 301U);
  }
  extract(bytes);
  EXPECT_THAT(staged(), IsEmpty());
  EXPECT_EQ(tree_of(directory_ / "out").size(), 301U);
}

}  // namespace
}  // namespace preload::artifact
