// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace preload::log {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };

// stderr, "host rank role" prefix; info from rank 0, debug (and warnings) from all.
void set_up(Level level, std::string identity);
void set_rank(int global_rank, std::string_view role);
Level parse_level(std::string_view text);  // throws Error(kUsage)

void debug(std::string_view text);
void info(std::string_view text);    // printed by rank 0 only
void notice(std::string_view text);  // info that every rank prints
void warn(std::string_view text);
void error(std::string_view text);

}  // namespace preload::log
