// SPDX-License-Identifier: Apache-2.0
#include "run/failure_report.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/prompt_write.hpp"

namespace preload::run {
namespace {

constexpr int kFirstSignalStatus = 129;
constexpr std::chrono::seconds kPatience{1};
constexpr std::size_t kLongestId = 64;

// Empty where no script of launch/ runs this, or the variable is none of theirs.
std::string launch_id() {
  std::string id = environment("PRELOAD_LAUNCH_ID");
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (id.size() > kLongestId || !std::ranges::all_of(id, is_hex)) id.clear();
  return id;
}

}  // namespace

bool is_signal_status(int status) noexcept { return status >= kFirstSignalStatus; }

void write_end_line(int status, std::optional<int> rank, std::optional<int> lost_task) {
  std::string line = fmt::format("preload: END status={}", status);
  if (rank) line += fmt::format(" rank={}", *rank);
  if (lost_task) line += fmt::format(" task={} lost", *lost_task);
  // By which launch/supervise tells this line from others of its kind, whoever wrote them.
  if (const std::string launch = launch_id(); !launch.empty()) line += " launch=" + launch;
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
