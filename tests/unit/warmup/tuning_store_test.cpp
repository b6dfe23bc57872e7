// SPDX-License-Identifier: Apache-2.0
#include "warmup/tuning_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "artifact/disk_tier.hpp"
#include "support/temp_dir.hpp"
#include "tuner/tuning_table.hpp"
#include "warmup/sweep_table.hpp"

namespace preload::warmup {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

const artifact::Environment kHere{{"gpu", "NVIDIA H200"}, {"nccl", "2.28.3"}};
const std::string kConfig(64, 'a');

// Their tables differ, too.
TuningTexts texts(double seconds) {
  constexpr tuner::Candidate kRing{tuner::Algorithm::kRing, tuner::Protocol::kSimple};
  SweepReport report;
  report.model = "a model";
  report.nccl_version = 22803;
  report.topology = {{"NVIDIA H200"}, {2, 1}, 2};
  report.groups = {"tp, world"};
  report.result.seconds = seconds;
  report.result.planned = 1;
  PointResult point;
  point.point = {0, {2, 1}, Operation::kAllReduce, 4096, false};
  point.offer = {{kRing}, kRing, false, 1};
  point.measured = {{Choice{}, seconds * 20e-6}};
  report.result.points = {point};
  return {to_json(make_table(report.result, 22803, report.topology, {{2, 1}})), to_json(report)};
}

class TuningStoreTest : public testing::Test {
 protected:
  TuningStore store(const artifact::Environment& here = kHere, std::string model = "a model") {
    return {tier_, kConfig, here, std::move(model)};
  }
  test::TempDir directory_;
  artifact::DiskTier tier_{directory_.path() + "/vllm-warmup-cache"};
};

TEST_F(TuningStoreTest, FindsWhatItKept) {
  EXPECT_FALSE(store().find());
  EXPECT_EQ(store().path_of(texts(1).table), "");
  store().keep(texts(1));
  EXPECT_EQ(store().find(), texts(1));
  std::ifstream file(store().path_of(texts(1).table));
  std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_EQ(text, texts(1).table);
  EXPECT_TRUE(std::filesystem::exists(
      std::filesystem::path(store().path_of(texts(1).table)).replace_extension("csv")));
}

TEST_F(TuningStoreTest, WhatIsMeasuredAnewTakesItsPlace) {
  store().keep(texts(1));
  store().keep(texts(2));
  EXPECT_EQ(store().find(), texts(2));
}

TEST_F(TuningStoreTest, OtherVersionsOfNcclLieBesideIt) {
  store().keep(texts(1));
  const artifact::Environment newer{{"gpu", "NVIDIA H200"}, {"nccl", "2.29.1"}};
  EXPECT_FALSE(store(newer).find());
  store(newer).keep(texts(2));
  EXPECT_EQ(store().find(), texts(1));
}

TEST_F(TuningStoreTest, ATableThatIsNoneIsMeasuredAnew) {
  store().keep({texts(1).table, "{}"});
  EXPECT_FALSE(store().find());
}

TEST_F(TuningStoreTest, AnotherTableIsNotTheOneThatIsAskedFor) {
  store().keep(texts(1));
  EXPECT_EQ(store().path_of(texts(2).table), "");
}

TEST_F(TuningStoreTest, EveryNodeNamesItByTheJobsFirstRank) {
  store().keep(texts(1));
  const std::filesystem::path path = store().path_of(texts(1).table);
  EXPECT_THAT(path.filename().string(), testing::MatchesRegex("dp0_rank0\\.[0-9a-f]+\\.json"));
}

// As after a write that did not get so far.
TEST_F(TuningStoreTest, ATableWithAnothersSweepIsMeasuredAnew) {
  store().keep(texts(1));
  const std::filesystem::path path = store().path_of(texts(1).table);
  const std::string name = path.filename().string();
  const artifact::Key key{std::string(artifact::kNcclTuner), kConfig, name};
  ASSERT_EQ(
      tier_.put_bytes(key, texts(2).table, {kHere, {}}, artifact::Overwrite::kSameEnvironment),
      artifact::Put::kStored);
  EXPECT_FALSE(store().find());
  const auto all = stored_sweeps(tier_, "");
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].table, "");
}

TEST_F(TuningStoreTest, ListsSweepsOfAModel) {
  EXPECT_THAT(stored_sweeps(tier_, ""), IsEmpty());
  store().keep(texts(1));
  const auto all = stored_sweeps(tier_, "");
  ASSERT_THAT(all, SizeIs(1));
  EXPECT_EQ(all[0].table, store().path_of(texts(1).table));
  EXPECT_EQ(all[0].report.result.planned, 1U);
  EXPECT_THAT(stored_sweeps(tier_, "a model"), SizeIs(1));
  EXPECT_THAT(stored_sweeps(tier_, "another"), IsEmpty());
  const auto json = nlohmann::json::parse(sweeps_json(all));
  EXPECT_EQ(json.at("sweeps").at(0).at("table"), store().path_of(texts(1).table));
  EXPECT_EQ(json.at("sweeps").at(0).at("model"), "a model");
}

}  // namespace
}  // namespace preload::warmup
