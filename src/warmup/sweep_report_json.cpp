// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "warmup/sweep_report.hpp"

namespace preload::warmup {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr double kMicroseconds = 1e6;

Json time_json(double seconds) {
  return std::isfinite(seconds) ? Json(seconds * kMicroseconds) : Json(nullptr);
}

double time_of(const Json& json) {
  return json.is_null() ? std::numeric_limits<double>::infinity()
                        : json.get<double>() / kMicroseconds;
}

Json candidate_json(const std::optional<tuner::Candidate>& candidate) {
  if (!candidate) return {{"algorithm", nullptr}, {"protocol", nullptr}};
  return {{"algorithm", tuner::name(candidate->algorithm)},
          {"protocol", tuner::name(candidate->protocol)}};
}

std::optional<tuner::Candidate> candidate_of(const Json& json) {
  if (json.at("algorithm").is_null()) return std::nullopt;
  const auto algorithm = tuner::algorithm_from(json.at("algorithm").get<std::string>());
  const auto protocol = tuner::protocol_from(json.at("protocol").get<std::string>());
  if (!algorithm || !protocol) throw Error(Errc::kUsage, "an unknown algorithm or protocol");
  return tuner::Candidate{*algorithm, *protocol};
}

Operation operation_of(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(Operation::kSendReceive); ++i) {
    if (operation_name(static_cast<Operation>(i)) == name) return static_cast<Operation>(i);
  }
  throw Error(Errc::kUsage, fmt::format("an unknown operation '{}'", name));
}

Json point_json(const PointResult& result) {
  Json candidates = Json::array();
  for (const Measured& each : result.measured) {
    Json candidate = candidate_json(each.choice.candidate);
    candidate["channels"] = each.choice.channels;
    candidate["microseconds"] = time_json(each.seconds);
    candidates.push_back(std::move(candidate));
  }
  Json offered = Json::array();
  for (const tuner::Candidate& each : result.offer.offered) offered.push_back(candidate_json(each));
  return {{"group", result.point.group},
          {"ranks", result.point.shape.ranks},
          {"nodes", result.point.shape.nodes},
          {"operation", operation_name(result.point.operation)},
          {"bytes", result.point.bytes},
          {"captured", result.point.captured},
          {"registered_buffers", result.offer.registered_buffers},
          {"pipelined_ops", result.offer.pipelined_ops},
          {"repetitions", result.repetitions},
          {"own", candidate_json(result.offer.own)},
          {"offered", std::move(offered)},
          {"candidates", std::move(candidates)},
          {"chosen", result.chosen ? Json(*result.chosen) : Json(nullptr)},
          {"default_microseconds", result.chosen ? time_json(result.default_seconds) : Json()},
          {"chosen_microseconds", result.chosen ? time_json(result.chosen_seconds) : Json()}};
}

PointResult point_of(const Json& json) {
  PointResult result;
  result.point = {json.at("group").get<std::size_t>(),
                  {json.at("ranks").get<int>(), json.at("nodes").get<int>()},
                  operation_of(json.at("operation").get<std::string>()),
                  json.at("bytes").get<std::uint64_t>(),
                  json.at("captured").get<bool>()};
  for (const Json& each : json.at("offered")) {
    if (const auto candidate = candidate_of(each)) result.offer.offered.push_back(*candidate);
  }
  result.offer.own = candidate_of(json.at("own"));
  result.offer.registered_buffers = json.at("registered_buffers").get<bool>();
  result.offer.pipelined_ops = json.at("pipelined_ops").get<int>();
  result.repetitions = json.at("repetitions").get<int>();
  for (const Json& each : json.at("candidates")) {
    result.measured.push_back(
        {{candidate_of(each), each.at("channels").get<int>()}, time_of(each.at("microseconds"))});
  }
  if (result.measured.empty()) throw Error(Errc::kUsage, "a message without a time");
  if (json.at("chosen").is_null()) return result;
  result.chosen = json.at("chosen").get<std::size_t>();
  if (*result.chosen >= result.measured.size()) {
    throw Error(Errc::kUsage, "a choice that was not measured");
  }
  result.default_seconds = time_of(json.at("default_microseconds"));
  result.chosen_seconds = time_of(json.at("chosen_microseconds"));
  return result;
}

SweepReport report_of(const Json& json) {
  SweepReport report;
  if (json.at("version").get<int>() != kVersion) {
    throw Error(Errc::kUsage, "its version is not this program's");
  }
  report.model = json.at("model").get<std::string>();
  report.nccl_version = json.at("nccl_version").get<int>();
  const Json& topology = json.at("topology");
  report.topology.gpus = topology.at("gpus").get<std::vector<std::string>>();
  report.topology.world = {topology.at("ranks").get<int>(), topology.at("nodes").get<int>()};
  report.topology.ranks_per_node = topology.at("ranks_per_node").get<int>();
  report.groups = json.at("groups").get<std::vector<std::string>>();
  report.margin = json.at("margin").get<double>();
  report.budget_s = json.at("budget_s").get<double>();
  report.result.planned = json.at("planned").get<std::size_t>();
  report.result.seconds = json.at("seconds").get<double>();
  for (const Json& each : json.at("points")) {
    report.result.points.push_back(point_of(each));
    if (report.result.points.back().point.group >= report.groups.size()) {
      throw Error(Errc::kUsage, "a message of a group that was not formed");
    }
  }
  return report;
}

}  // namespace

std::string to_json(const SweepReport& report) {
  Json points = Json::array();
  for (const PointResult& point : report.result.points) points.push_back(point_json(point));
  const Json json{{"version", kVersion},
                  {"model", report.model},
                  {"nccl_version", report.nccl_version},
                  {"topology",
                   {{"gpus", report.topology.gpus},
                    {"ranks", report.topology.world.ranks},
                    {"nodes", report.topology.world.nodes},
                    {"ranks_per_node", report.topology.ranks_per_node}}},
                  {"groups", report.groups},
                  {"margin", report.margin},
                  {"budget_s", report.budget_s},
                  {"seconds", report.result.seconds},
                  {"planned", report.result.planned},
                  {"points", std::move(points)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

SweepReport sweep_report_from_json(std::string_view text, std::string_view what) {
  std::string reason;
  try {
    return report_of(Json::parse(text));
  } catch (const nlohmann::json::exception& error) {
    reason = error.what();
  } catch (const Error& error) {
    reason = error.what();
  }
  throw Error(Errc::kUsage, fmt::format("{}: not a sweep of this version of preload ({}); tune "
                                        "again with `preload tune`",
                                        what, reason));
}

}  // namespace preload::warmup
