// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "cli/option_table.hpp"

namespace preload::manual {

// What a shell may offer as an option's value.
enum class ValueKind { kNone, kWords, kPath, kFree };

ValueKind value_kind(const cli::OptionSpec& option);
// The values of an option that takes a fixed few, separated by spaces; empty for others.
std::string value_words(std::string_view option);
// What may stand for the command's positional argument, with spaces between: "load".
std::string positional_words(const cli::CommandSpec& command);

}  // namespace preload::manual
