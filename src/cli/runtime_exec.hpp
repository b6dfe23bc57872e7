// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cli/command.hpp"

namespace preload::cli {

// Continues as preload-runtime, which links MPI and CUDA, under the same process id: a launcher
// keeps watching it. Throws Error(kUsage) listing the paths tried when it is not there.
[[noreturn]] void exec_runtime(const Arguments& arguments);

// Where it is; nothing when it is not there.
std::optional<std::string> find_runtime();

}  // namespace preload::cli
