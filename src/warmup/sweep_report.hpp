// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tuner/tuning_table.hpp"
#include "warmup/sweep_result.hpp"

namespace preload::warmup {

// A sweep as it is shown and kept beside its table: everything that was measured.
struct SweepReport {
  std::string model;
  int nccl_version = 0;
  tuner::Topology topology;
  std::vector<std::string> groups;  // names, by SweepPoint::group
  double margin = 0;
  double budget_s = 0;
  SweepResult result;
  friend bool operator==(const SweepReport&, const SweepReport&) = default;
};

// Times in microseconds; null where something could not be timed.
std::string to_json(const SweepReport& report);
// Throws Error(kUsage) that names `what` (a path) when the text is no report of this version.
SweepReport sweep_report_from_json(std::string_view text, std::string_view what);

// For people: a line about the whole, and one for each message.
std::string to_text(const SweepReport& report);
// "57 of 60 messages measured in 12 s, NCCL's own choice beaten for 9 of them"
std::string summary(const SweepResult& result);

}  // namespace preload::warmup
