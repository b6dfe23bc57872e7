// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace preload::warmup {
namespace {

using testing::HasSubstr;
using tuner::Algorithm;
using tuner::Candidate;
using tuner::Protocol;

SweepReport report() {
  SweepReport report;
  report.model = "/models/llama";
  report.nccl_version = 22803;
  report.topology = {{"NVIDIA H200"}, {2, 1}, 2};
  report.groups = {"tp, world"};
  report.margin = 0.05;
  report.budget_s = 60;
  report.result.planned = 3;
  report.result.seconds = 2.5;
  PointResult point;
  point.point = {0, {2, 1}, Operation::kAllReduce, 8192, true};
  point.offer = {
      {Candidate{Algorithm::kTree, Protocol::kLl}, Candidate{Algorithm::kRing, Protocol::kLl}},
      Candidate{Algorithm::kRing, Protocol::kLl},
      true,
      1};
  point.repetitions = 20;
  point.measured = {{Choice{}, 16e-6},
                    {Choice{Candidate{Algorithm::kTree, Protocol::kLl}, 8}, 8e-6},
                    {Choice{Candidate{Algorithm::kTree, Protocol::kLl}, 32},
                     std::numeric_limits<double>::infinity()}};
  point.chosen = 1;
  point.default_seconds = 16e-6;
  point.chosen_seconds = 8e-6;
  PointResult sent;
  sent.point = {0, {2, 1}, Operation::kAllToAll, 65536, false};
  sent.measured = {{Choice{}, 32e-6}};
  report.result.points = {point, sent};
  return report;
}

TEST(SweepReport, TellsTimesInMicrosecondsAndMarksTheChoice) {
  const auto json = nlohmann::json::parse(to_json(report()));
  const auto& point = json.at("points").at(0);
  EXPECT_EQ(point.at("operation"), "all_reduce");
  EXPECT_EQ(point.at("chosen"), 1);
  EXPECT_NEAR(point.at("candidates").at(0).at("microseconds").get<double>(), 16, 1e-9);
  EXPECT_EQ(point.at("candidates").at(1).at("algorithm"), "tree");
  EXPECT_EQ(point.at("candidates").at(1).at("channels"), 8);
  EXPECT_TRUE(point.at("candidates").at(2).at("microseconds").is_null());
}

TEST(SweepReport, SurvivesItsJson) {
  const SweepReport before = report();
  const SweepReport after = sweep_report_from_json(to_json(before), "a test");
  EXPECT_EQ(after.topology, before.topology);
  EXPECT_EQ(after.groups, before.groups);
  ASSERT_EQ(after.result.points.size(), 2U);
  const PointResult& point = after.result.points[0];
  EXPECT_EQ(point.point, before.result.points[0].point);
  EXPECT_EQ(point.offer, before.result.points[0].offer);
  EXPECT_EQ(point.measured[1].choice, before.result.points[0].measured[1].choice);
  EXPECT_NEAR(point.measured[1].seconds, 8e-6, 1e-15);
  EXPECT_TRUE(std::isinf(point.measured[2].seconds));
  EXPECT_EQ(point.chosen, 1U);
  EXPECT_FALSE(after.result.points[1].chosen);
  EXPECT_EQ(to_text(after), to_text(before));
}

TEST(SweepReport, RefusesWhatIsNone) {
  const std::string good = to_json(report());
  auto with = [&](auto change) {
    auto json = nlohmann::json::parse(good);
    change(json);
    return json.dump();
  };
  const std::vector<std::string> bad = {
      "",
      "[]",
      good.substr(0, good.size() / 2),
      with([](auto& json) { json["version"] = 2; }),
      with([](auto& json) { json.erase("groups"); }),
      with([](auto& json) { json["points"][0]["group"] = 7; }),
      with([](auto& json) { json["points"][0]["chosen"] = 3; }),
      with([](auto& json) { json["points"][0]["operation"] = "all_reduced"; }),
      with([](auto& json) { json["points"][0]["candidates"][1]["algorithm"] = "star"; }),
      with([](auto& json) { json["points"][0]["candidates"] = nlohmann::json::array(); }),
  };
  for (const std::string& text : bad) {
    try {
      sweep_report_from_json(text, "/a/sweep.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kUsage);
      EXPECT_THAT(error.what(), HasSubstr("/a/sweep.json"));
      EXPECT_THAT(error.what(), HasSubstr("preload tune"));
    }
  }
}

TEST(SweepReport, IsALineForEachMessage) {
  const std::string text = to_text(report());
  EXPECT_THAT(text, HasSubstr("2 of 3 messages measured in 2.5 s, NCCL's own choice beaten for 1"));
  EXPECT_THAT(text, HasSubstr("tree/ll, 8 channels"));
  EXPECT_THAT(text, HasSubstr("+100.0 %"));
  EXPECT_THAT(text, HasSubstr("all_to_all"));
}

}  // namespace
}  // namespace preload::warmup
