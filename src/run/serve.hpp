// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/serve_options.hpp"
#include "comm/launcher.hpp"
#include "warmup/backend.hpp"

namespace preload::run {

// Loads this rank's part and serves it until it is told to stop; returns the exit status. Throws
// the Error that ended it, or Cancelled where somebody else's failure did and another rank logs it.
int serve(const cli::ServeOptions& options, const Launcher& launcher,
          const warmup::Backend& backend);

}  // namespace preload::run
