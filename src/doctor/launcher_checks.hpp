// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "comm/launcher.hpp"
#include "doctor/check.hpp"
#include "doctor/variables.hpp"

namespace preload::doctor {

// Whether launcher and MPI can speak with each other: a launcher of several tasks that gives them
// no PMI makes each of them rank 0 of 1.
Check check_launcher(const Launcher& launcher, const Variables& variables);

// The second executable, and what it says of the MPI and CUDA that it is built with.
struct RuntimeFacts {
  std::string path;     // empty: it was not found
  std::string problem;  // why it does not run: a library that is not found, …
  std::string says;     // "preload-runtime 0.1.0, Open MPI v4.1.4, CUDA 12.4"
};
RuntimeFacts gather_runtime_facts(const std::optional<std::string>& path);
Check check_runtime(const RuntimeFacts& facts, const Launcher& launcher);

}  // namespace preload::doctor
