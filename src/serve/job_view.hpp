// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/directory_view.hpp"

namespace preload {

// How far a job's local daemons are, from one look at the directory.
struct JobView {
  enum class Verdict {
    kReady,     // as many answer READY as the job announced
    kPending,   // some load
    kFailed,    // one left a tombstone
    kDead,      // one is gone without a word
    kReleased,  // one let go of its weights: it will not become ready
    kNothing,   // no daemon of the job
  };
  Verdict verdict = Verdict::kNothing;
  std::string job;
  std::string text;                 // for kFailed, kDead, kReleased; else how many are ready
  std::string code;                 // of the failure, as on the wire
  int exit_status = 1;              // of a tombstone
  std::vector<DaemonView> daemons;  // the job's
};

// The named job, else the newest. `expected` daemons of each of its roles, else as many as the
// job's state files announce.
JobView view_job(const std::vector<DaemonView>& views, const std::optional<std::string>& job,
                 std::optional<int> expected);

}  // namespace preload
