// SPDX-License-Identifier: Apache-2.0
#include "artifact/tree_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "artifact/disk_tier.hpp"
#include "support/temp_dir.hpp"
#include "unit/artifact/log_lines.hpp"

namespace preload::artifact {
namespace {

using test::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const Environment kHere{{"gpu", "H200"}};
const Metadata kMetadata{kHere, {{"tree", "triton"}}};

class TreeStore : public testing::Test {
 protected:
  void SetUp() override {
    if (!bundles_problem().empty()) GTEST_SKIP() << bundles_problem();
  }
  Key reference(int rank) const {
    RankCoords coords;
    coords.global = rank;
    return {std::string(kCompileCache), "c0", rank_filename(coords, kHere, "triton.json")};
  }
  // Of the only bundle there is.
  std::string bundle_path() {
    std::string path;
    for (const Entry& entry : tier_.list()) {
      if (entry.key.filename == "bundle.tar") {
        EXPECT_EQ(path, "");
        EXPECT_EQ(entry.key.config_hash, entry.sha256);
        path = "cache/compile_cache/" + entry.sha256 + "/bundle.tar";
      }
    }
    return path;
  }

  TempDir directory_;
  DiskTier tier_{directory_ / "cache"};
};

TEST_F(TreeStore, ALaterJobGetsTheTreeBack) {
  directory_.write("in/k/a.cubin", "binary");
  EXPECT_EQ(store_tree(tier_, reference(0), directory_ / "in", kMetadata), Put::kStored);
  const auto restored = restore_tree(tier_, reference(0), kHere, directory_ / "out");
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->files, 1U);
  EXPECT_EQ(directory_.read("out/k/a.cubin"), "binary");
}

TEST_F(TreeStore, RanksWithTheSameTreeShareOneBundle) {
  directory_.write("in/a", "x");
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(store_tree(tier_, reference(rank), directory_ / "in", kMetadata), Put::kStored);
  }
  EXPECT_THAT(tier_.list(), testing::SizeIs(4));
  EXPECT_NE(bundle_path(), "");
  EXPECT_EQ(store_tree(tier_, reference(0), directory_ / "in", kMetadata), Put::kPresent);
}

TEST_F(TreeStore, ATreeThatGrewTakesThePlaceOfTheOlder) {
  directory_.write("in/a", "x");
  store_tree(tier_, reference(0), directory_ / "in", kMetadata);
  directory_.write("in/b", "y");
  EXPECT_EQ(store_tree(tier_, reference(0), directory_ / "in", kMetadata), Put::kStored);
  EXPECT_EQ(restore_tree(tier_, reference(0), kHere, directory_ / "out")->files, 2U);
}

TEST_F(TreeStore, AStopLeavesNothingHalfDone) {
  directory_.write("in/k/a", "x");
  Cancel cancel;
  cancel.request({130, "stopped"});
  EXPECT_THROW(store_tree(tier_, reference(0), directory_ / "in", kMetadata, {}, &cancel),
               Cancelled);
  EXPECT_THAT(tier_.list(), IsEmpty());
  store_tree(tier_, reference(0), directory_ / "in", kMetadata);
  directory_.write("out/b", "y");
  EXPECT_THROW(restore_tree(tier_, reference(0), kHere, directory_ / "out", {}, &cancel),
               Cancelled);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out/k"));
  const auto beside = std::filesystem::directory_iterator(directory_.path());
  EXPECT_EQ(std::ranges::count_if(beside, [](const auto& each) { return each.is_directory(); }), 3)
      << "more than cache, in and out";
}

TEST_F(TreeStore, AnEmptyTreeIsNotStored) {
  directory_.make_directory("in/nothing");
  EXPECT_EQ(store_tree(tier_, reference(0), directory_ / "in", kMetadata), Put::kPresent);
  EXPECT_THAT(tier_.list(), IsEmpty());
}

TEST_F(TreeStore, WhatIsNotThereIsASilentMiss) {
  EXPECT_THAT(log_lines_of([&] {
                EXPECT_FALSE(restore_tree(tier_, reference(0), kHere, directory_ / "out"));
              }),
              IsEmpty());
}

TEST_F(TreeStore, AnotherEnvironmentIsAMiss) {
  directory_.write("in/a", "x");
  store_tree(tier_, reference(0), directory_ / "in", kMetadata);
  EXPECT_THAT(
      log_lines_of([&] {
        EXPECT_FALSE(restore_tree(tier_, reference(0), {{"gpu", "H100"}}, directory_ / "out"));
      }),
      ElementsAre(HasSubstr("gpu H200 (H100 here)")));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out"));
}

TEST_F(TreeStore, ATruncatedBundleInstallsNothingAndTheNextStoreMendsIt) {
  directory_.write("in/a", std::string(100000, 'x'));
  directory_.write("out/mine", "y");
  store_tree(tier_, reference(0), directory_ / "in", kMetadata);
  directory_.truncate(bundle_path(), 50000);
  EXPECT_THAT(log_lines_of([&] {
                EXPECT_FALSE(restore_tree(tier_, reference(0), kHere, directory_ / "out"));
              }),
              ElementsAre(HasSubstr("it has 50000 of the")));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out/a"));
  EXPECT_EQ(store_tree(tier_, reference(0), directory_ / "in", kMetadata), Put::kPresent);
  EXPECT_TRUE(restore_tree(tier_, reference(0), kHere, directory_ / "out"));
}

TEST_F(TreeStore, ABundleThatIsGoneIsASilentMiss) {
  directory_.write("in/a", "x");
  store_tree(tier_, reference(0), directory_ / "in", kMetadata);
  const std::filesystem::path bundle = directory_ / bundle_path();
  std::filesystem::remove_all(bundle.parent_path());
  EXPECT_THAT(log_lines_of([&] {
                EXPECT_FALSE(restore_tree(tier_, reference(0), kHere, directory_ / "out"));
              }),
              IsEmpty());
}

TEST_F(TreeStore, AReferenceToAnotherContentIsNotFollowed) {
  // Somebody put a sound entry under a name that is not its hash.
  const std::string wrong(64, 'a');
  tier_.put_bytes({std::string(kCompileCache), wrong, "bundle.tar"}, "whatever", {{}, {}});
  tier_.put_bytes(reference(0), nlohmann::json{{"bundle", wrong}}.dump(), kMetadata);
  tier_.put_bytes(reference(1), R"({"bundle": "../../etc"})", kMetadata);
  tier_.put_bytes(reference(2), "[]", kMetadata);
  for (const int rank : {0, 1, 2}) {
    EXPECT_THAT(log_lines_of([&] {
                  EXPECT_FALSE(restore_tree(tier_, reference(rank), kHere, directory_ / "out"));
                }),
                ElementsAre(HasSubstr("stays as it is")));
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "out"));
}

TEST_F(TreeStore, WhatCannotBeBundledIsOneLine) {
  EXPECT_THAT(log_lines_of([&] {
                EXPECT_EQ(store_tree(tier_, reference(0), directory_ / "absent", kMetadata),
                          Put::kFailed);
              }),
              ElementsAre(HasSubstr("is not kept for later jobs")));
}

}  // namespace
}  // namespace preload::artifact
