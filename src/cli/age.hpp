// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace preload::cli {

// "30d", "12h", "90m", "45s": in seconds; nothing when malformed or too large.
std::optional<std::time_t> parse_age(std::string_view text);
std::string format_age(std::time_t seconds);  // in the largest unit that is full: "29d"

}  // namespace preload::cli
