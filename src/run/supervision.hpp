// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "base/cancel.hpp"
#include "comm/job_channel.hpp"
#include "comm/mpi_session.hpp"

namespace preload::run {

// This rank's end of the job channel, and on rank 0 the hub. A world of one listens nowhere.
class Supervision {
 public:
  // Collective: returns when every rank is connected, or throws on all ranks.
  Supervision(Group& group, JobEvents events, const Cancel& cancel);

  void set_progress(std::uint64_t bytes, std::uint64_t total_bytes) noexcept;
  std::optional<JobProgress> progress() const;  // of the whole job; on rank 0 of several alone
  void bound();
  JobFailure fail(int status, const std::string& text);  // see JobMember
  void request_stop();
  void bye();

 private:
  int rank_;
  JobEvents events_;           // of a world of one
  std::optional<JobHub> hub_;  // outlives our own connection to it
  std::optional<JobMember> member_;
};

}  // namespace preload::run
