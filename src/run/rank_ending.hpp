// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "comm/job_channel.hpp"
#include "run/rank_context.hpp"
#include "serve/server.hpp"

namespace preload::run {

// How a rank ends, whatever phase it was in: told to the other ranks first, left as a tombstone for
// clients, and decided by whichever rank failed first.
class RankEnding {
 public:
  explicit RankEnding(RankContext& rank) : rank_(rank) {}

  // Does the rank's work; the exit status, or throws the Error that this rank is the one to log.
  int run(const std::function<ServeEnd()>& work);

 private:
  int conclude(const ServeEnd& end);
  // Throws Cancelled with the job's failure, which may be another rank's, when rank 0 has logged
  // it; returns when it is left to this rank.
  void report(Errc code, const std::string& text, std::optional<int> of_rank = std::nullopt);
  void end_with(const JobFailure& verdict);
  void await_leases();
  void close_servers();
  void leave_place();
  JobFailure verdict_on(const ServeEnd& end);
  JobFailure own_failure(int status, const std::string& text) const;
  void leave_tombstone(const JobFailure& failure, std::string_view code);
  void let_launcher_see(const JobFailure& failure) const;

  RankContext& rank_;
};

}  // namespace preload::run
