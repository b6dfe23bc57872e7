// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace preload {

// Text that came from outside (a path, a config's words, a peer's) for terminals and for scripts
// that read lines: what is in it can neither begin a line nor move the cursor.

// On one line: control characters as \n, \t or \x1b.
std::string one_line(std::string_view text);
// The same, but its lines stay lines: all but the first are indented.
std::string indented(std::string_view text);

}  // namespace preload
