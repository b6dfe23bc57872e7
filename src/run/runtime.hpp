// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "warmup/backend.hpp"

namespace preload::run {

// What NCCL runs on in this process; called before there are threads.
using MakeBackend = std::function<warmup::Backend()>;

// The program preload-runtime: the exit status of the command that `argv` names.
int run_runtime(int argc, char** argv, const MakeBackend& backend);

}  // namespace preload::run
