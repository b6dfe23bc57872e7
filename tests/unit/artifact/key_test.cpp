// SPDX-License-Identifier: Apache-2.0
#include "artifact/key.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace preload::artifact {
namespace {

RankCoords rank(int dp, int global) {
  RankCoords coords;
  coords.dp = dp;
  coords.global = global;
  return coords;
}

TEST(ArtifactKey, IsTheSamePathInEveryTier) {
  const Key key{"nccl_tuner", "ab12", "dp0_rank3.json"};
  EXPECT_EQ(key.text(), "vllm-warmup-cache/nccl_tuner/ab12/dp0_rank3.json");
  EXPECT_EQ(parse_key(key.text()), key);
  EXPECT_EQ(parse_key("nccl_tuner/ab12/dp0_rank3.json"), key);
}

TEST(ArtifactKey, NeverLeadsOutOfTheCache) {
  for (const char* text :
       {"", "a", "a/b", "a/b/c/d", "/a/b/c", "a/../c", "a/b/..", "./b/c", "a//c", "a/b/.hidden",
        "a/b/c d", "a/b/c\n", "vllm-warmup-cache/a/b", "a/b/\xc3\xa4"}) {
    EXPECT_THROW(parse_key(text), Error) << text;
  }
  EXPECT_NO_THROW(check_key({"a", "b", std::string(128, 'c')}));
  EXPECT_THROW(check_key({"a", "b", std::string(129, 'c')}), Error);
  EXPECT_THROW(check_key({"a", "b/c", "d"}), Error);
}

TEST(ArtifactKey, AFileNameSaysWhoseItIs) {
  const std::string name = rank_filename(rank(1, 5), {{"gpu", "NVIDIA H200"}}, "json");
  // The first digits of printf '{"gpu":"NVIDIA H200"}' | sha256sum
  EXPECT_EQ(name, "dp1_rank5.fd0682c6.json");
}

TEST(ArtifactKey, NamesOfARankUnderSeveralEnvironmentsAreKnownAsSuch) {
  const Environment old{{"driver", "570"}};
  const Environment now{{"driver", "580"}};
  const std::string name = rank_filename(rank(0, 3), now, "json");
  EXPECT_NE(name, rank_filename(rank(0, 3), old, "json"));
  EXPECT_TRUE(same_but_environment(name, rank_filename(rank(0, 3), old, "json")));
  EXPECT_FALSE(same_but_environment(name, rank_filename(rank(0, 4), old, "json")));
  EXPECT_FALSE(same_but_environment(name, rank_filename(rank(1, 3), old, "json")));
  EXPECT_FALSE(same_but_environment(name, rank_filename(rank(0, 3), old, "csv")));
  EXPECT_FALSE(same_but_environment("bundle.tar", "bundle.tar"));
  EXPECT_FALSE(same_but_environment("dp0_rank3.json", "dp0_rank3.json"));
}

}  // namespace
}  // namespace preload::artifact
