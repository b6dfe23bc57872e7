// SPDX-License-Identifier: Apache-2.0
#include "run/tuning_facts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.hpp"

namespace preload::run {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TuningFacts good() {
  return {22803, "", "NVIDIA H200", std::uint64_t{100} << 30, {"NCCL_ALGO=ring"}};
}

TEST(TuningFacts, SurviveTheirText) {
  TuningFacts facts = good();
  facts.in_the_way = "no plugin";
  facts.environment = {{"driver", "580.95"}};
  EXPECT_EQ(decode_tuning_facts(encode(facts)), facts);
  EXPECT_THROW(decode_tuning_facts("{}"), Error);
}

TEST(TuningFacts, SayWhatIsInTheWayOfWhichRank) {
  EXPECT_EQ(not_tuned_because({good(), good()}, 2), "");
  TuningFacts other = good();
  other.in_the_way = "this build has no NCCL";
  EXPECT_EQ(not_tuned_because({good(), other}, 2), "rank 1: this build has no NCCL");
  TuningFacts old = good();
  old.nccl_version = 22304;
  EXPECT_THAT(not_tuned_because({old, old}, 2),
              AllOf(HasSubstr("2.23.4"), HasSubstr("--nccl-library")));
  other = good();
  other.nccl_version = 22705;
  EXPECT_THAT(not_tuned_because({good(), good(), other}, 2),
              AllOf(HasSubstr("rank 2 would use NCCL 2.27.5"), HasSubstr("rank 0 NCCL 2.28.3")));
  other = good();
  other.free_bytes = std::uint64_t{1} << 30;
  EXPECT_THAT(not_tuned_because({other}, 2), HasSubstr("rank 0: 1.00 GiB are free on its GPU"));
}

TEST(TuningFacts, WantMemoryForEachCommunicator) {
  TuningFacts facts = good();
  facts.free_bytes = std::uint64_t{2} << 30;
  EXPECT_EQ(not_tuned_because({facts}, 2), "");
  EXPECT_THAT(not_tuned_because({facts}, 5),
              AllOf(HasSubstr("2.00 GiB are free"), HasSubstr("3.50 GiB for 5 communicators"),
                    HasSubstr("preload tune")));
}

TEST(TuningFacts, TheFullestGpuSaysHowLargeBuffersMayBe) {
  EXPECT_EQ(tuning_buffer_bytes({good(), good()}), std::uint64_t{256} << 20);
  TuningFacts full = good();
  full.free_bytes = std::uint64_t{1} << 30;
  EXPECT_EQ(tuning_buffer_bytes({good(), full}), std::uint64_t{128} << 20);
}

TEST(TuningFacts, OfAnotherPlacementOrOtherVariablesAreAnotherTables) {
  const std::vector<RankPlace> near = {{0, 0, 0, 2}, {1, 0, 1, 2}};
  const std::vector<RankPlace> apart = {{0, 0, 0, 1}, {1, 1, 0, 1}};
  const auto fields = tuning_fields({good(), good()}, near, 8192);
  EXPECT_EQ(tuning_fields({good(), good()}, near, 8192), fields);
  EXPECT_NE(tuning_fields({good(), good()}, apart, 8192), fields);
  EXPECT_NE(tuning_fields({good(), good()}, near, 4096), fields);
  TuningFacts other = good();
  other.variables = {"NCCL_P2P_DISABLE=1"};
  EXPECT_NE(tuning_fields({good(), other}, near, 8192), fields);
  // What is free at a time decides nothing.
  other = good();
  other.free_bytes = 1;
  EXPECT_EQ(tuning_fields({good(), other}, near, 8192), fields);
}

TEST(TuningFacts, ATableIsOfAllThatTheJobRunsOn) {
  TuningFacts old = good(), newer = good(), unknown = good();
  old.environment = {{"driver", "570.86"}, {"gpu", "NVIDIA H200"}};
  newer.environment = {{"driver", "580.95"}, {"gpu", "NVIDIA H200"}};
  const artifact::Environment same{
      {"driver", "570.86, 580.95"}, {"gpu", "NVIDIA H200"}, {"nccl", "2.28.3"}};
  EXPECT_EQ(job_environment({old, newer}), same);
  EXPECT_EQ(job_environment({newer, old, old}), same);
  EXPECT_EQ(job_environment({old, unknown}).at("gpu"), "NVIDIA H200, unknown");
}

TEST(TuningFacts, CountTheVariablesThatDecideHowNcclCarriesMessages) {
  ::setenv("NCCL_P2P_DISABLE", "1", 1);
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_TUNER_PLUGIN", "/a/plugin.so", 1);
  const std::vector<std::string> variables = nccl_variables();
  EXPECT_THAT(variables, Contains("NCCL_P2P_DISABLE=1"));
  EXPECT_THAT(variables, Not(Contains("NCCL_DEBUG=INFO")));
  EXPECT_THAT(variables, Not(Contains("NCCL_TUNER_PLUGIN=/a/plugin.so")));
  ::unsetenv("NCCL_P2P_DISABLE");
  ::unsetenv("NCCL_DEBUG");
  ::unsetenv("NCCL_TUNER_PLUGIN");
}

}  // namespace
}  // namespace preload::run
