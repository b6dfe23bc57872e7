// SPDX-License-Identifier: Apache-2.0
#include "artifact/flashinfer_tables.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
    return store_flashinfer_tables(tier_, directory_ / "vllm", coords(rank), config, {kHere, {}});
  }
  std::size_t restore(int rank, const std::string& to, const std::string& config = "job") {
    return restore_flashinfer_tables(tier_, directory_ / to, coords(rank), config, kHere);
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
  EXPECT_EQ(store(3), 1U);
  const auto entries = tier_.list(kFlashinferAutotune);
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries.front().key.config_hash, kHash);
  EXPECT_EQ(entries.front().key.filename,
            rank_filename(coords(3), kHere, "autotune_configs_dp0_rank3.json"));
  EXPECT_EQ(restore(3, "new/folder"), 1U);
  EXPECT_EQ(directory_.read("new/folder/" + kHash + "/autotune_configs_dp0_rank3.json"), kTable);
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
