// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace preload::cli {

// One row of the option table, from which parsing, --help and the man pages follow.
struct OptionSpec {
  std::string_view name;          // long name without dashes, words joined by '-'
  std::string_view abbreviation;  // "tp" for -tp, "" when there is none
  std::string_view value;         // placeholder of its argument; "" makes it a switch
  std::string_view commands;      // the commands that take it, separated by spaces
  std::string_view help;
  bool repeats = false;  // may be given several times
};

// A command as its help page names it.
struct CommandSpec {
  std::string_view name;
  std::string_view positional;  // "DIR", "" when it takes none
  std::string_view summary;
};

// Flags of other tools that preload replaces by the launcher; given, they are refused.
struct ReplacedFlag {
  std::string_view name;
  std::string_view because;
  std::string_view neutral = {};  // the value that says what holds anyway, where there is one
};

std::span<const OptionSpec> option_table() noexcept;
std::span<const CommandSpec> command_table() noexcept;
std::span<const ReplacedFlag> replaced_flags() noexcept;

const CommandSpec* find_command(std::string_view name) noexcept;
bool takes(const OptionSpec& option, std::string_view command) noexcept;

}  // namespace preload::cli
