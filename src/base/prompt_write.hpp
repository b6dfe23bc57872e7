// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>

namespace preload {

// Writes `text` to `fd` (a pipe, terminal, socket or file) in one go where there is room, and never
// blocks for longer than `patience`, whoever does not read the other end: a full pipe must not stop
// a rank that serves. False when it was not written. The flags of the description behind `fd`,
// which other processes may share, stay as they are. SIGPIPE must be ignored.
bool write_promptly(int fd, std::string_view text, std::chrono::milliseconds patience) noexcept;

// Descriptors 0 to 2 that the process was started without become /dev/null, so that no file of ours
// gets one of these numbers and with it what is meant for a user.
void open_standard_descriptors() noexcept;

}  // namespace preload
