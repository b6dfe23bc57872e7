// SPDX-License-Identifier: Apache-2.0
#include "tuner/tuning_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/tuner/sample_table.hpp"

namespace preload::test {
namespace {

using namespace tuner;

TEST(TuningTable, ReadsItsDocumentedForm) {
  EXPECT_EQ(tuning_table_from_json(sample_text(), "sample"), sample_table());
}

TEST(TuningTable, ReadsWhatItWrites) {
  const TuningTable table = sample_table();
  EXPECT_EQ(tuning_table_from_json(to_json(table), "written"), table);
}

TEST(TuningTable, IsTheSameTextWhateverTheOrderOfItsEntries) {
  TuningTable table = sample_table();
  const std::string text = to_json(table);
  const std::string rows = to_csv(table);
  std::reverse(table.entries.begin(), table.entries.end());
  EXPECT_EQ(to_json(table), text);
  EXPECT_EQ(to_csv(table), rows);
}

TEST(TuningTable, GainIsHowManyMoreCollectivesFitIntoTheSameTime) {
  const TuningTable table = sample_table();
  EXPECT_DOUBLE_EQ(table.entries[0].gain(), 0.5);   // 9 us instead of 6
  EXPECT_DOUBLE_EQ(table.entries[1].gain(), 0.25);  // 12.5 us instead of 10
  EXPECT_DOUBLE_EQ(table.entries[3].gain(), 0.0);   // NCCL's own choice stays
}

TEST(TuningTable, WritesTheRowsOfNcclsExampleTuner) {
  EXPECT_EQ(to_csv(sample_table()),
            "# preload tune, NCCL 2.28.3, 8 ranks on 1 node, margin 0.05\n"
            "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,"
            "numPipeOps,regBuff\n"
            "allgather,0,4096,pat,simple,-1,1,4,1,1\n"
            "allreduce,1024,65536,nvls,simple,16,1,8,1,0\n"
            "allreduce,65537,1048576,tree,ll,-1,1,8,1,0\n");
}

TEST(TuningTable, NumbersItsNamesAsNcclDoes) {
  // ncclFunc_t of nccl_common.h, NCCL_ALGO_* and NCCL_PROTO_* of nccl_tuner.h.
  EXPECT_EQ(static_cast<int>(*collective_from("broadcast")), 0);
  EXPECT_EQ(static_cast<int>(*collective_from("reduce")), 1);
  EXPECT_EQ(static_cast<int>(*collective_from("allgather")), 2);
  EXPECT_EQ(static_cast<int>(*collective_from("reducescatter")), 3);
  EXPECT_EQ(static_cast<int>(*collective_from("allreduce")), 4);
  EXPECT_EQ(static_cast<int>(*algorithm_from("tree")), 0);
  EXPECT_EQ(static_cast<int>(*algorithm_from("ring")), 1);
  EXPECT_EQ(static_cast<int>(*algorithm_from("collnet_direct")), 2);
  EXPECT_EQ(static_cast<int>(*algorithm_from("collnet_chain")), 3);
  EXPECT_EQ(static_cast<int>(*algorithm_from("nvls")), 4);
  EXPECT_EQ(static_cast<int>(*algorithm_from("nvls_tree")), 5);
  EXPECT_EQ(static_cast<int>(*algorithm_from("pat")), 6);
  EXPECT_EQ(static_cast<int>(*protocol_from("ll")), 0);
  EXPECT_EQ(static_cast<int>(*protocol_from("ll128")), 1);
  EXPECT_EQ(static_cast<int>(*protocol_from("simple")), 2);
  EXPECT_FALSE(algorithm_from("Ring"));
}

TEST(TuningTable, LeavesChannelsToNcclWhereNcclWouldNotBoundThem) {
  const auto may = [](Algorithm algorithm, int nodes) {
    return channels_may_be_set({algorithm, Protocol::kSimple}, nodes);
  };
  EXPECT_TRUE(may(Algorithm::kRing, 2));
  EXPECT_TRUE(may(Algorithm::kNvls, 1));
  EXPECT_FALSE(may(Algorithm::kNvls, 2));
  EXPECT_FALSE(may(Algorithm::kCollnetDirect, 1));
  EXPECT_FALSE(may(Algorithm::kCollnetChain, 2));
}

}  // namespace
}  // namespace preload::test
