// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace preload {

// Who started this process, from the environment alone.
struct Launcher {
  enum class Kind { kNone, kOpenMpi, kPmix, kSlurm, kPmi };
  Kind kind = Kind::kNone;
  int size = 1;             // tasks the launcher says it started; 0 when it does not say
  std::optional<int> rank;  // as the launcher counts, for messages before MPI is up
  std::optional<int> local_rank;
  std::string job_id;  // e.g. "slurm-1234.0"; empty when there is none that lasts

  friend bool operator==(const Launcher&, const Launcher&) = default;
};

// Reads the environment. Throws Error(kLauncher) when a variable of the launcher is no number.
Launcher detect_launcher();
std::string_view launcher_name(Launcher::Kind kind) noexcept;  // "mpirun", "srun", ...

// "NAME=value" of every variable that launchers and MPI transports look at, sorted, secrets left
// out: what a person needs to see when starting up failed.
std::string launcher_environment();

}  // namespace preload
