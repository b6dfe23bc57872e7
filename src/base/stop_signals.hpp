// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <signal.h>

namespace preload {

// What asks a daemon to end: SIGINT, SIGTERM, and SIGHUP unless it is ignored, as nohup wants it.
// (That a shell ignores SIGINT for what it starts in the background is not a wish of anybody's.)
sigset_t stop_signals() noexcept;

}  // namespace preload
