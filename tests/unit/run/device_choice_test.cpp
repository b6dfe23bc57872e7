// SPDX-License-Identifier: Apache-2.0
#include "run/device_choice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"

namespace preload::run {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ProcessFacts sees(std::vector<std::string> gpus, std::string host = "n0") {
  ProcessFacts facts;
  facts.host = std::move(host);
  facts.boot_id = facts.host;
  if (gpus.empty()) facts.no_gpus = "libcuda.so.1 was not found";
  facts.gpus = std::move(gpus);
  return facts;
}

// `count` ranks on one node.
std::vector<RankPlace> node_of(int count) {
  std::vector<RankPlace> places;
  for (int i = 0; i < count; ++i) places.push_back({i, 0, i, count});
  return places;
}

std::string refusal(bool cuda, const std::vector<ProcessFacts>& processes,
                    const std::vector<RankPlace>& places) {
  try {
    choose_devices(cuda, processes, places);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kLauncher);
    return error.what();
  }
  return "accepted";
}

TEST(DeviceChoice, GivesLocalRankIToGpuIWhereAllAreVisible) {
  const std::vector<ProcessFacts> processes(2, sees({"gpu-b", "gpu-a"}));
  const std::vector<DeviceChoice> expected{{"gpu-b", 0}, {"gpu-a", 1}};
  EXPECT_EQ(choose_devices(true, processes, node_of(2)), expected);
}

TEST(DeviceChoice, TakesTheOneGpuThatTheLauncherGaveEachRank) {
  const std::vector<DeviceChoice> expected{{"gpu-a", 0}, {"gpu-b", 0}};
  EXPECT_EQ(choose_devices(true, {sees({"gpu-a"}), sees({"gpu-b"})}, node_of(2)), expected);
}

TEST(DeviceChoice, RefusesTwoRanksOnOneGpuNamingThemAndTheFlags) {
  const auto text = refusal(true, {sees({"gpu-a"}), sees({"gpu-b"}), sees({"gpu-a"})}, node_of(3));
  EXPECT_THAT(text, AllOf(HasSubstr("ranks 0 and 2 on n0"), HasSubstr("gpu-a"),
                          HasSubstr("--gpus-per-task=1"), HasSubstr("CUDA_VISIBLE_DEVICES")));
}

TEST(DeviceChoice, RefusesMoreRanksThanGpus) {
  const auto text =
      refusal(true, std::vector<ProcessFacts>(3, sees({"gpu-a", "gpu-b"})), node_of(3));
  EXPECT_THAT(text, AllOf(HasSubstr("3 ranks were started on n0"), HasSubstr("rank 2"),
                          HasSubstr("sees 2 GPUs"), HasSubstr("--ntasks-per-node")));
}

TEST(DeviceChoice, LetsTwoNodesUseGpusOfTheSameName) {
  const std::vector<RankPlace> places{{0, 0, 0, 1}, {1, 1, 0, 1}};
  const std::vector<DeviceChoice> expected{{"gpu-a", 0}, {"gpu-a", 0}};
  EXPECT_EQ(choose_devices(true, {sees({"gpu-a"}, "n0"), sees({"gpu-a"}, "n1")}, places), expected);
}

TEST(DeviceChoice, NamesHostMemoryByLocalRank) {
  const std::vector<RankPlace> places{{0, 0, 0, 2}, {1, 0, 1, 2}, {2, 1, 0, 1}};
  const std::vector<DeviceChoice> expected{{"host:0", 0}, {"host:1", 0}, {"host:0", 0}};
  EXPECT_EQ(choose_devices(false, {sees({}), sees({}), sees({}, "n1")}, places), expected);
}

TEST(DeviceChoice, UsesCudaUnaskedOnlyWhenEveryRankHasAGpu) {
  EXPECT_TRUE(choose_cuda(std::nullopt, {sees({"gpu-a"}), sees({"gpu-b"})}, node_of(2)));
  EXPECT_FALSE(choose_cuda(std::nullopt, {sees({}), sees({})}, node_of(2)));
  EXPECT_FALSE(choose_cuda(false, {sees({"gpu-a"})}, node_of(1)));
}

TEST(DeviceChoice, RefusesAJobOfWhichSomeRanksHaveNoGpu) {
  for (const std::optional<bool> asked : {std::optional<bool>(), std::optional<bool>(true)}) {
    try {
      choose_cuda(asked, {sees({"gpu-a"}), sees({}, "n1")}, node_of(2));
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(exit_status(error.code()), 4);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1 on n1 (libcuda.so.1 was not found)"),
                                      HasSubstr("--device host")));
    }
  }
}

TEST(ProcessFacts, ComeBackFromTheirText) {
  const ProcessFacts facts = sees({"gpu-a", "mig-b"});
  EXPECT_EQ(decode_facts(encode(facts)), facts);
}

}  // namespace
}  // namespace preload::run
