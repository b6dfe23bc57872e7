// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/signalfd.h>

namespace preload {

// How `preload stop` asks a daemon that has no socket yet: SIGTERM with a word that tells it from
// everybody else's, so that the job ends with 0 as it would after READY. False with errno set when
// it was not sent.
bool send_stop_request(int pidfd) noexcept;
bool is_stop_request(const signalfd_siginfo& signal) noexcept;

}  // namespace preload
