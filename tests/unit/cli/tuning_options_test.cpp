// SPDX-License-Identifier: Apache-2.0
#include "cli/tuning_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

namespace preload::cli {
namespace {

TuningOptions of_serve(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--model", "/m"});
  return parse_serve_options(arguments).tuning;
}

TEST(TuningOptions, AreOnAndBoundedUnlessToldOtherwise) {
  const TuningOptions usual = of_serve({});
  EXPECT_FALSE(usual.disabled);
  EXPECT_DOUBLE_EQ(usual.budget_s, 60);
  EXPECT_EQ(usual.most_tokens, 8192);
  const TuningOptions told =
      of_serve({"--autotune-budget", "2.5", "--max_num_batched_tokens=2048"});
  EXPECT_DOUBLE_EQ(told.budget_s, 2.5);
  EXPECT_EQ(told.most_tokens, 2048);
}

TEST(TuningOptions, AreTurnedOffByEitherName) {
  EXPECT_TRUE(of_serve({"--disable-autotune"}).disabled);
  EXPECT_TRUE(of_serve({"--disable-flashinfer-autotune"}).disabled);
}

TEST(TuningOptions, AreRefusedWhereTheyMakeNoSense) {
  EXPECT_THROW(of_serve({"--autotune-budget", "-1"}), Error);
  EXPECT_THROW(of_serve({"--autotune-budget", "soon"}), Error);
  EXPECT_THROW(of_serve({"--max-num-batched-tokens", "0"}), Error);
  // A job that only tunes is not to be told not to.
  EXPECT_THROW(parse_tune_options({"--model", "/m", "--disable-autotune"}), Error);
}

TEST(TuningOptions, OfTuneNameTheModelAndItsSizes) {
  const TuneOptions tune = parse_tune_options(
      {"--model", "/m", "-tp", "8", "--nccl-library", "/lib/libnccl.so.2", "--json"});
  EXPECT_EQ(tune.serve.model.model, "/m");
  EXPECT_EQ(tune.serve.model.tp, 8);
  EXPECT_EQ(tune.serve.nccl_library, "/lib/libnccl.so.2");
  EXPECT_TRUE(tune.json);
  EXPECT_EQ(parse_tune_options({}).serve.model.model, "");
}

}  // namespace
}  // namespace preload::cli
