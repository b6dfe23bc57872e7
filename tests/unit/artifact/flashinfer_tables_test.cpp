// SPDX-License-Identifier: Apache-2.0
#include "artifact/flashinfer_tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

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
// Of vLLM's making; nobody else can.
const std::string kHash = "c0e08888381a68086d35ad68ac110e90f879325c8377dda2c95c298d78a1f399";
const std::string kTable = R"json({"_metadata": {"gpu": "H200"}, "('op',)": ["R", 1]})json";

class FlashinferTables : public testing::Test {
 protected:
  std::size_t store(int rank, const std::string& config = "job") {
    return store_flashinfer_tables(tier_, {directory_ / "vllm", ""}, coords(rank), config,
                                   {kHere, {}});
  }
  std::size_t restore(int rank, const std::string& to, const std::string& config = "job") {
    return restore_flashinfer_tables(tier_, {directory_ / to, ""}, coords(rank), config, kHere);
  }
  static RankCoords coords(int rank) {
    RankCoords coords;
    coords.global = rank;
    return coords;
  }

  TempDir directory_;
  DiskTier tier_{directory_ / "cache"};
};

TEST_F(FlashinferTables, AreFoundByLookingAndPutBackWhereVllmLooks) {
  directory_.write("vllm/" + kHash + "/autotune_configs_dp0_rank3.json", kTable);
  EXPECT_EQ(store(2), 1U);  // by the first rank of a node
  const auto entries = tier_.list(kFlashinferAutotune);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries.front().key.config_hash, kHash);
  // printf '{"gpu":"H200"}' | sha256sum
  EXPECT_EQ(entries.front().key.filename, "dp0_rank3.300db786.autotune_configs_dp0_rank3.json");
  EXPECT_EQ(restore(2, "new/folder"), 1U);
  EXPECT_EQ(directory_.read("new/folder/" + kHash + "/autotune_configs_dp0_rank3.json"), kTable);
}

TEST_F(FlashinferTables, OfEveryRankComeBackBelowVllmsCacheRoot) {
  const std::string tail = "/flashinfer_autotune_cache/0.6.18/90a/" + kHash;
  const std::vector<std::string> names{"autotune_configs_dp0_rank0.json",
                                       "autotune_configs_dp1_rank5.json", "autotune_config.json"};
  for (const std::string& name : names) directory_.write("root" + tail + "/" + name, kTable);
  const RankCoords first = coords(0);
  EXPECT_EQ(store_flashinfer_tables(tier_, {"", directory_ / "root"}, first, "job", {kHere, {}}),
            3U);
  std::vector<std::string> owners;
  for (const Entry& entry : tier_.list(kFlashinferAutotune)) {
    owners.push_back(entry.key.filename.substr(0, entry.key.filename.find('.')));
  }
  EXPECT_THAT(owners, testing::UnorderedElementsAre("dp0_rank0", "dp1_rank5", "dp0_rank0"));
  EXPECT_EQ(restore_flashinfer_tables(tier_, {"", directory_ / "new"}, first, "job", kHere), 3U);
  for (const std::string& name : names)
    EXPECT_EQ(directory_.read("new" + tail + "/" + name), kTable);
  // A folder that is named comes before the root, and takes them as well.
  EXPECT_EQ(restore_flashinfer_tables(tier_, {directory_ / "named", directory_ / "new"}, first,
                                      "job", kHere),
            3U);
  EXPECT_EQ(directory_.read("named/" + kHash + "/" + names[1]), kTable);
}

TEST_F(FlashinferTables, AFolderThatLeadsOutIsNotFollowed) {
  for (const char* folder : {"../..", "/tmp/x", "0.6.18", "0.6.18/..", "0.6.18/90a/.."}) {
    const Key key{std::string(kFlashinferAutotune), kHash,
                  rank_filename(coords(0), kHere, "autotune_config.json")};
    tier_.put_bytes(key, kTable, {kHere, {{"config", "job"}, {"folder", folder}}},
                    Overwrite::kSameEnvironment);
    EXPECT_EQ(
        restore_flashinfer_tables(tier_, {"", directory_ / "a/b/new"}, coords(0), "job", kHere),
        0U);
    EXPECT_EQ(tier_.prune({.all = true}).keys.size(), 1U);
  }
  EXPECT_FALSE(std::filesystem::exists(directory_ / "a"));
}

TEST_F(FlashinferTables, AreARanksAndAConfigurationsOwn) {
  directory_.write("vllm/" + kHash + "/autotune_configs.json", kTable);
  EXPECT_EQ(store(3), 1U);
  EXPECT_EQ(restore(2, "new"), 0U);
  EXPECT_EQ(restore(3, "new", "other"), 0U);
  EXPECT_EQ(restore(3, "new"), 1U);
  EXPECT_EQ(directory_.read("new/" + kHash + "/autotune_configs.json"), kTable);
}

TEST_F(FlashinferTables, NeverTakeThePlaceOfVllmsOwn) {
  directory_.write("vllm/" + kHash + "/autotune_configs.json", kTable);
  store(0);
  directory_.write("new/" + kHash + "/autotune_configs.json", "{}");
  EXPECT_EQ(restore(0, "new"), 0U);
  EXPECT_EQ(directory_.read("new/" + kHash + "/autotune_configs.json"), "{}");
}

TEST_F(FlashinferTables, AreStoredAgainWhenTheyGrew) {
  const std::string name = "vllm/" + kHash + "/autotune_configs.json";
  directory_.write(name, "{}");
  EXPECT_EQ(store(0), 1U);
  directory_.write(name, kTable);
  EXPECT_EQ(store(0), 1U);
  EXPECT_EQ(restore(0, "new"), 1U);
  EXPECT_EQ(directory_.read("new/" + kHash + "/autotune_configs.json"), kTable);
}

TEST_F(FlashinferTables, WhatElseLiesThereIsLeftAlone) {
  directory_.write("vllm/" + kHash + "/.autotuner_x1.tmp", kTable);
  directory_.write("vllm/" + kHash + "/notes.json", kTable);
  directory_.write("vllm/other/autotune_configs.json", kTable);
  directory_.write("vllm/file", "x");
  EXPECT_THAT(log_lines_of([&] { EXPECT_EQ(store(0), 0U); }), IsEmpty());
  directory_.write("vllm/" + kHash + "/autotune_configs.json", "{ half");
  EXPECT_THAT(log_lines_of([&] { EXPECT_EQ(store(0), 0U); }),
              ElementsAre(HasSubstr("is no table of FlashInfer's")));
}

TEST_F(FlashinferTables, AFolderThatIsNotThereHasNone) {
  EXPECT_THAT(log_lines_of([&] {
                EXPECT_EQ(store(0), 0U);
                EXPECT_EQ(restore(0, "new"), 0U);
              }),
              IsEmpty());
}

}  // namespace
}  // namespace preload::artifact
