// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace preload {

// Who started this process, from the environment alone.
struct Launcher {
  enum class Kind { kNone, kOpenMpi, kPmix, kSlurm };
  Kind kind = Kind::kNone;
  int size = 1;                  // tasks the launcher says it started; 0 when it does not say
  std::optional<int> local_rank;
  std::string job_id;            // e.g. "slurm-1234.0"; empty when there is none
};
Launcher detect_launcher();      // reads the environment

}  // namespace preload
