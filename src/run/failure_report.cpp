// SPDX-License-Identifier: Apache-2.0
#include "run/failure_report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/prompt_write.hpp"

namespace preload::run {
namespace {

constexpr int kFirstSignalStatus = 129;
constexpr std::chrono::seconds kPatience{1};

}  // namespace

bool is_signal_status(int status) noexcept { return status >= kFirstSignalStatus; }

void write_end_line(int status, std::optional<int> rank, std::optional<int> lost_task) {
  std::string line = fmt::format("preload: END status={}", status);
  if (rank) line += fmt::format(" rank={}", *rank);
  if (lost_task) line += fmt::format(" task={} lost", *lost_task);
  // By which launch/supervise tells this line from others of its kind, whoever wrote them.
  if (const std::string launch = environment("PRELOAD_LAUNCH_ID"); !launch.empty()) {
    line += fmt::format(" launch={}", one_line(launch));
  }
  line += '\n';
  write_promptly(STDERR_FILENO, line, kPatience);
}

void report_failure(const JobFailure& failure, const std::vector<int>& tasks) {
  if (is_signal_status(failure.status)) {
    log::warn(describe(failure));
  } else {
    log::error(describe(failure));
  }
  std::optional<int> lost_task;
  if (failure.lost) {
    lost_task = tasks.empty() ? failure.rank : tasks.at(static_cast<std::size_t>(failure.rank));
  }
  write_end_line(failure.status, failure.rank, lost_task);
}

}  // namespace preload::run
