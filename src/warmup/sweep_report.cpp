// SPDX-License-Identifier: Apache-2.0
#include "warmup/sweep_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/bytes.hpp"
#include "base/counted.hpp"

namespace preload::warmup {
namespace {

std::string candidate_text(const Choice& choice) {
  if (!choice.candidate) return "NCCL's own";
  if (choice.channels == 0) return text_of(*choice.candidate);
  return fmt::format("{}, {}", text_of(*choice.candidate), counted(choice.channels, "channel"));
}

std::string time_text(double seconds) {
  return std::isfinite(seconds) ? fmt::format("{:.1f}", seconds * 1e6) : "none";
}

std::string row(const SweepReport& report, const PointResult& point) {
  std::string text =
      fmt::format("{:<15}{:<14}{:>12}  {:<7}{:>12}  ", operation_name(point.point.operation),
                  fmt::format("{}:{}x{}", report.groups.at(point.point.group),
                              point.point.shape.ranks, point.point.shape.nodes),
                  format_bytes(point.point.bytes), point.point.captured ? "graph" : "eager",
                  time_text(point.chosen ? point.default_seconds : point.measured.front().seconds));
  if (point.chosen) {
    text += fmt::format(
        "{:<28}{:>12}  {:+.1f} %", candidate_text(point.measured[*point.chosen].choice),
        time_text(point.chosen_seconds), (point.default_seconds / point.chosen_seconds - 1) * 100);
  } else {
    text += is_tunable(point.point.operation) ? "NCCL's own" : "-";
  }
  return text + "\n";
}

}  // namespace

std::string summary(const SweepResult& result) {
  const auto chosen = std::ranges::count_if(
      result.points, [](const PointResult& point) { return point.chosen.has_value(); });
  return fmt::format("{} of {} measured in {:.1f} s, NCCL's own choice beaten for {} of them",
                     result.points.size(), counted(result.planned, "message"), result.seconds,
                     chosen);
}

std::string to_text(const SweepReport& report) {
  std::string text =
      fmt::format("{}: NCCL {}, {} on {}, margin {:.0f} %, budget {:g} s\n{}\n\n", report.model,
                  tuner::nccl_version_text(report.nccl_version),
                  fmt::join(report.topology.gpus, ", "), tuner::text_of(report.topology.world),
                  report.margin * 100, report.budget_s, summary(report.result));
  text += fmt::format("{:<15}{:<14}{:>12}  {:<7}{:>12}  {:<28}{:>12}  {}\n", "operation",
                      "ranks x nodes", "bytes", "from", "default us", "chosen", "us", "gain");
  for (const PointResult& point : report.result.points) text += row(report, point);
  return text;
}

}  // namespace preload::warmup
