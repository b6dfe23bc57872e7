// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "artifact/disk_tier.hpp"
#include "artifact/held_file.hpp"
#include "base/error.hpp"
#include "cli/age.hpp"
#include "cli/command.hpp"
#include "support/temp_dir.hpp"

namespace preload::cli {
namespace {

using artifact::DiskTier;
using artifact::Key;
using nlohmann::json;
using test::ScopedEnv;
using test::TempDir;
using testing::HasSubstr;
using testing::Not;

const Key kTable{"nccl_tuner", "0123456789abcdef", "dp0_rank0.00000000.json"};
const Key kBundle{"compile_cache", "fedcba9876543210", "bundle.tar"};

class ArtifactsCommand : public testing::Test {
 protected:
  ArtifactsCommand() {
    DiskTier tier;
    tier.put_bytes(kTable, "table", {{{"gpu", "NVIDIA H200"}}, {{"model", "llama"}}});
    tier.put_bytes(kBundle, "bundle!", {});
  }
  std::string run(const Arguments& arguments, int status = 0) {
    testing::internal::CaptureStdout();
    const int result = run_artifacts(arguments);
    std::fflush(stdout);
    const std::string out = testing::internal::GetCapturedStdout();
    EXPECT_EQ(result, status) << out;
    return out;
  }
  void use_long_ago(const Key& key) {
    const std::filesystem::path folder =
        std::filesystem::path(directory_.path()) / "vllm-warmup-cache" / key.kind / key.config_hash;
    const timespec then{::time(nullptr) - 40L * 86400, 0};
    const timespec times[2] = {then, then};
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      ASSERT_EQ(::utimensat(AT_FDCWD, file.path().c_str(), times, 0), 0);
    }
  }

  TempDir directory_;
  ScopedEnv root_{"PRELOAD_CACHE_ROOT", directory_.path().c_str()};
};

TEST_F(ArtifactsCommand, ListsALineEach) {
  const std::string out = run({"list"});
  EXPECT_THAT(out, HasSubstr("nccl_tuner"));
  EXPECT_THAT(out, HasSubstr("0123456789ab "));
  EXPECT_THAT(out, HasSubstr("dp0_rank0.00000000.json"));
  EXPECT_THAT(out, HasSubstr("2 artifacts, 12 B in " + directory_.path()));
  EXPECT_EQ(run({}), out);
}

TEST_F(ArtifactsCommand, NamesThatAreNoUtf8DoNotStopJson) {
  directory_.write("vllm-warmup-cache/k/c/stray\xff.json", "x");
  EXPECT_EQ(json::parse(run({"check", "--json"}, 3)).at("damaged").size(), 1U);
  EXPECT_EQ(json::parse(run({"prune", "--json"})).at("removed").size(), 1U);
  EXPECT_EQ(json::parse(run({"list", "--json"})).at("artifacts").size(), 2U);
}

TEST_F(ArtifactsCommand, PruneSaysWhatStaysSinceAJobUsesIt) {
  const Fd held = artifact::hold_file(
      directory_ / "vllm-warmup-cache/nccl_tuner/0123456789abcdef/" + kTable.filename);
  ASSERT_TRUE(held);
  EXPECT_THAT(run({"prune", "--all"}), HasSubstr(kTable.text() + " stays: a job uses it"));
  const json pruned = json::parse(run({"prune", "--all", "--json"}));
  EXPECT_EQ(pruned.at("in_use"), json::array({kTable.text()}));
  EXPECT_EQ(pruned.at("removed"), json::array());
}

TEST_F(ArtifactsCommand, KindAndKeyNarrow) {
  EXPECT_THAT(run({"list", "--kind", "compile_cache"}), Not(HasSubstr("nccl_tuner")));
  EXPECT_THAT(run({"show", "--key", kTable.text()}), Not(HasSubstr("bundle.tar")));
  EXPECT_THAT(run({"list", "--kind", "no_such"}), HasSubstr("0 artifacts"));
}

TEST_F(ArtifactsCommand, ShowsWhatEachWasMadeUnder) {
  const std::string out = run({"show", "--kind=nccl_tuner"});
  EXPECT_THAT(out, HasSubstr(kTable.text()));
  EXPECT_THAT(out, HasSubstr("NVIDIA H200"));
  EXPECT_THAT(out, HasSubstr("llama"));
}

TEST_F(ArtifactsCommand, PrintsTheSameAsJson) {
  const json out = json::parse(run({"list", "--json"}));
  ASSERT_EQ(out["artifacts"].size(), 2U);
  EXPECT_EQ(out["root"], directory_ / "vllm-warmup-cache");
  const json& table = out["artifacts"][1];
  EXPECT_EQ(table["key"], kTable.text());
  EXPECT_EQ(table["bytes"], 5);
  EXPECT_EQ(table["environment"], json({{"gpu", "NVIDIA H200"}}));
  EXPECT_EQ(table["labels"], json({{"model", "llama"}}));
}

TEST_F(ArtifactsCommand, CheckFailsForADamagedOne) {
  EXPECT_THAT(run({"check"}), HasSubstr("2 of 2 artifacts are sound"));
  directory_.flip_byte("vllm-warmup-cache/nccl_tuner/0123456789abcdef/dp0_rank0.00000000.json", 1);
  const std::string out = run({"check"}, 3);
  EXPECT_THAT(out, HasSubstr(kTable.text() + ": its content is not the one that was written"));
  EXPECT_THAT(out, HasSubstr("1 of 2 artifacts are sound"));
  const json damaged = json::parse(run({"check", "--json"}, 3))["damaged"];
  ASSERT_EQ(damaged.size(), 1U);
  EXPECT_EQ(damaged[0]["key"], kTable.text());
}

TEST_F(ArtifactsCommand, PrunesByAgeAndSize) {
  EXPECT_THAT(run({"prune"}), HasSubstr("0 artifacts removed"));
  use_long_ago(kTable);
  EXPECT_THAT(run({"prune", "--unused", "50d"}), HasSubstr("0 artifacts removed"));
  EXPECT_THAT(run({"prune", "--unused", "30d"}), HasSubstr(kTable.text()));
  EXPECT_THAT(run({"prune", "--max-bytes", "7"}), HasSubstr("0 artifacts removed"));
  EXPECT_THAT(run({"prune", "--max-bytes", "6"}), HasSubstr("1 artifact removed, 7 B"));
  EXPECT_THAT(run({"list"}), HasSubstr("0 artifacts"));
}

TEST_F(ArtifactsCommand, PrunesWhatIsChosen) {
  const json out = json::parse(run({"prune", "--all", "--kind", "nccl_tuner", "--json"}));
  EXPECT_EQ(out["removed"], json::array({kTable.text()}));
  EXPECT_EQ(out["bytes"], 5);
  EXPECT_THAT(run({"list"}), HasSubstr("1 artifact, 7 B"));
}

TEST_F(ArtifactsCommand, RefusesWhatItDoesNotKnow) {
  for (const Arguments& arguments : std::vector<Arguments>{{"remove"},
                                                           {"list", "--all"},
                                                           {"check", "--unused", "1d"},
                                                           {"prune", "--unused", "soon"},
                                                           {"prune", "--max-bytes", "much"},
                                                           {"show", "--key", "../x"}}) {
    EXPECT_THROW(run_artifacts(arguments), Error) << arguments.back();
  }
}

TEST(Age, IsReadAndWrittenWithAUnit) {
  EXPECT_EQ(parse_age("30d"), 30 * 86400);
  EXPECT_EQ(parse_age("12h"), 12 * 3600);
  EXPECT_EQ(parse_age("90m"), 5400);
  EXPECT_EQ(parse_age("0s"), 0);
  for (const char* text : {"", "d", "3", "-1d", "1.5h", "1 d", "99999999999d", "1w"}) {
    EXPECT_FALSE(parse_age(text)) << text;
  }
  EXPECT_EQ(format_age(0), "0s");
  EXPECT_EQ(format_age(59), "59s");
  EXPECT_EQ(format_age(3599), "59m");
  EXPECT_EQ(format_age(86399), "23h");
  EXPECT_EQ(format_age(5L * 86400), "5d");
  EXPECT_EQ(format_age(-5), "0s");
}

}  // namespace
}  // namespace preload::cli
