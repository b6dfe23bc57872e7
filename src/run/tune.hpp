// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/tuning_options.hpp"
#include "comm/launcher.hpp"
#include "warmup/backend.hpp"

namespace preload::run {

// `preload tune` as a job: measures anew, loads nothing, keeps what it found for `serve` and prints
// it on rank 0. The exit status.
int tune(const cli::TuneOptions& options, const Launcher& launcher, const warmup::Backend& backend);

}  // namespace preload::run
