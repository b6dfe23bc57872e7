// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace preload::test {

// Runs `body` on a thread to which the kernel refuses io_uring_setup with EPERM, as a container's
// seccomp profile does. False, and nothing run, where such a filter cannot be had.
bool run_without_io_uring(const std::function<void()>& body);

}  // namespace preload::test
