// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "comm/job_channel.hpp"

namespace preload::run {

// Of a job that a signal ended: nothing is wrong with it.
bool is_signal_status(int status) noexcept;

// "preload: END status=1 rank=2 task=5 lost launch=1f2e…" on stderr: what the job's exit status is
// to be, by which the scripts of launch/ correct their launcher's own. `task` is the launcher's
// number of a rank that was lost, whose status only the launcher can know.
void write_end_line(int status, std::optional<int> rank = std::nullopt,
                    std::optional<int> lost_task = std::nullopt);

// What everybody is told of the job's failure: the text in the log, the status in the END line.
// `tasks` are the launcher's numbers by global rank; empty where they are the same.
void report_failure(const JobFailure& failure, const std::vector<int>& tasks);

}  // namespace preload::run
