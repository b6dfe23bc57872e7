// SPDX-License-Identifier: Apache-2.0
#include "bench/load_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace preload::bench {
namespace {

using nlohmann::json;
using testing::HasSubstr;

LoadFigures figures() {
  LoadFigures load;
  load.model = "m";
  load.device = "cuda";
  load.gpu = "NVIDIA H200";
  load.bytes = 16'000'000'000;
  load.seconds = 0.32;
  load.setup_seconds = 0.02;
  load.limit_gb_per_s = 55;
  load.limit = "pinned host to device";
  load.reader = "pread";
  load.threads = 12;
  load.runs = 5;
  load.tensors = 291;
  return load;
}

const std::vector<PeerFigures> kPeers = {
    {"instanttensor", "0.2.2", "safe_open", 0.4, 40.0, "", ""},
    {"safetensors", "0.8.0", "load_file", std::nullopt, std::nullopt, "tensor a: shape []", ""},
    {"fastsafetensors", "", "", std::nullopt, std::nullopt, "", "not installed"}};

TEST(LoadReport, GivesTheFiguresAndTheirRatiosAsOneLineOfJson) {
  const std::string line = report_json(figures(), kPeers);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const json report = json::parse(line);
  EXPECT_EQ(report["bytes"], 16'000'000'000);
  EXPECT_EQ(report["seconds"], 0.32);
  EXPECT_DOUBLE_EQ(report["gb_per_s"], 50);
  EXPECT_EQ(report["limit_gb_per_s"], 55);
  EXPECT_DOUBLE_EQ(report["ratio"], 50.0 / 55);
  EXPECT_EQ(report["reader"], "pread");
  EXPECT_EQ(report["hot"], true);
  EXPECT_EQ(report["verified"], true);
  EXPECT_DOUBLE_EQ(report["peers"][0]["ratio_to_ours"], 0.8);
  EXPECT_EQ(report["peers"][1], (json{{"name", "safetensors"},
                                      {"version", "0.8.0"},
                                      {"setting", "load_file"},
                                      {"error", "tensor a: shape []"}}));
  EXPECT_EQ(report["peers"][2], (json{{"name", "fastsafetensors"}, {"skipped", "not installed"}}));
}

TEST(LoadReport, SaysTheSameInWords) {
  const std::string text = report_text(figures(), kPeers);
  EXPECT_THAT(text, HasSubstr("m to NVIDIA H200, hot: 14.90 GiB in 0.320 s, 50.0 GB/s"));
  EXPECT_THAT(text, HasSubstr("pinned host to device: 55.0 GB/s, ratio 0.909"));
  EXPECT_THAT(text, HasSubstr("instanttensor 0.2.2, safe_open: 0.400 s, 40.0 GB/s, 0.800 of ours"));
  EXPECT_THAT(text, HasSubstr("safetensors 0.8.0, load_file: failed, tensor a: shape []"));
  EXPECT_THAT(text, HasSubstr("fastsafetensors: skipped, not installed"));
}

TEST(LoadReport, ReadsWhatTheHelperPrints) {
  const auto peers = parse_peers(R"({"peers": [
      {"name": "instanttensor", "version": "0.2.2", "setting": "safe_open", "seconds": 0.4,
       "gb_per_s": 40.0, "tensors": 3, "verified": true},
      {"name": "fastsafetensors", "skipped": "not installed"}]})");
  EXPECT_EQ(peers, (std::vector<PeerFigures>{kPeers[0], kPeers[2]}));
  for (const char* text : {"", "[]", R"({"peers": [{}]})", R"({"peers": [{"name": 1}]})"}) {
    EXPECT_THROW(parse_peers(text), Error) << text;
  }
}

}  // namespace
}  // namespace preload::bench
