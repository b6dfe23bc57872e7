// SPDX-License-Identifier: Apache-2.0
#include "run/kept_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "artifact/disk_tier.hpp"
#include "support/temp_dir.hpp"
#include "warmup/sweep_table.hpp"
#include "world.hpp"

namespace preload::run {
namespace {

using testing_mpi::world;

const artifact::Environment kJob{{"gpu", "a GPU"}, {"nccl", "2.28.3"}};

warmup::TuningTexts texts(double seconds) {
  constexpr tuner::Candidate kRing{tuner::Algorithm::kRing, tuner::Protocol::kSimple};
  warmup::SweepReport report;
  report.nccl_version = 22803;
  report.topology = {{"a GPU"}, {2, 2}, 1};
  report.groups = {"tp, world"};
  report.result.planned = 1;
  warmup::PointResult point;
  point.point = {0, {2, 2}, warmup::Operation::kAllReduce, 4096, false};
  point.offer = {{kRing}, kRing, false, 1};
  point.measured = {{warmup::Choice{}, seconds}};
  report.result.points = {point};
  return {to_json(make_table(report.result, 22803, report.topology, {{2, 2}})), to_json(report)};
}

// Every rank is a node with a disk of its own.
class KeptTable : public testing::Test {
 protected:
  std::string keep(const warmup::TuningTexts& mine, const std::string& table) {
    warmup::TuningStore store(tier_, std::string(64, 'a'), kJob, "a model");
    store.keep(mine);
    return path_kept_by_all(world(), store, table, {"a test", cancel_});
  }
  static bool is_last() { return world().rank() == world().size() - 1; }

  const Cancel cancel_;
  const test::TempDir directory_;
  const std::string root_ = directory_.path() + "/cache";
  artifact::DiskTier tier_{root_};
};

TEST_F(KeptTable, IsFoundUnderOneNameOnAllRanks) {
  const std::string path = keep(texts(1), texts(1).table);
  ASSERT_NE(path, "");
  const std::string name = std::filesystem::relative(path, root_).string();
  for (const std::string& each : world().all_gather(name, {"a test", cancel_})) {
    EXPECT_EQ(each, name);
  }
}

TEST_F(KeptTable, IsNoRanksWhereOneNodeCannotKeepIt) {
  if (is_last()) std::ofstream(root_) << "no directory";
  EXPECT_EQ(keep(texts(1), texts(1).table), "");
}

TEST_F(KeptTable, IsNoRanksWhereOneNodeHasAnother) {
  EXPECT_EQ(keep(texts(is_last() ? 2 : 1), texts(1).table), "");
  EXPECT_NE(keep(texts(1), texts(1).table), "");
}

}  // namespace
}  // namespace preload::run
