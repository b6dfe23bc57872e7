// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "comm/job_channel.hpp"
#include "comm/mpi_session.hpp"

namespace preload::run {

// This rank's end of the job channel, and on rank 0 the hub. A world of one listens nowhere.
class Supervision {
 public:
  // Collective: returns when every rank is connected, or throws on all ranks. `tasks`: see
  // report_failure.
  Supervision(Group& group, JobEvents events, const Cancel& cancel,
              const std::vector<int>& tasks = {});

  void set_progress(const RankProgress& progress) noexcept;
  std::vector<RankProgress> progress() const;  // of the whole job; empty but on rank 0 of several
  std::optional<int> slowest_rank() const noexcept;  // of several
  void bound();
  std::optional<int> await_warm_ups(bool succeeded, const Cancel& cancel,
                                    std::chrono::milliseconds limit);  // see JobMember
  // See JobMember; rank 0 has logged what is returned. Nothing in a world of one.
  std::optional<JobFailure> fail(int status, const std::string& text,
                                 std::optional<int> of_rank = std::nullopt);
  void await_others(std::chrono::milliseconds limit);
  void request_stop();
  void bye();
  std::optional<JobFailure> await_goodbyes(std::chrono::milliseconds limit) const;  // see JobHub

 private:
  int rank_;
  JobEvents events_;           // of a world of one
  std::optional<JobHub> hub_;  // outlives our own connection to it
  std::optional<JobMember> member_;
};

}  // namespace preload::run
