// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/option_table.hpp"
#include "manual/choices.hpp"
#include "manual/completion.hpp"

namespace preload::manual {
namespace {

using cli::CommandSpec;
using cli::OptionSpec;

std::string quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string option_line(const CommandSpec& command, const OptionSpec& option) {
  std::string line = fmt::format("complete -c preload -n 'test (__preload_command) = {}' -l {}",
                                 command.name, option.name);
  if (!option.abbreviation.empty()) line += fmt::format(" -o {}", option.abbreviation);
  const ValueKind kind = value_kind(option);
  // -x: a value is wanted, and no file's name is one.
  if (kind == ValueKind::kPath) line += " -r -F";
  if (kind == ValueKind::kWords) line += " -x -a " + quoted(value_words(option.name));
  if (kind == ValueKind::kFree) line += " -x";
  return line + " -d " + quoted(option.help) + "\n";
}

}  // namespace

std::string fish_completion() {
  std::string out =
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Completion of preload in fish, made from its option table.\n"
      "function __preload_command\n"
      "  set -l words (commandline -opc)\n"
      "  if test (count $words) -gt 1; and not string match -q -- '-*' $words[2]\n"
      "    echo $words[2]\n"
      "  else\n"
      "    echo serve\n"
      "  end\n"
      "end\n"
      "complete -c preload -f\n";
  for (const CommandSpec& command : cli::command_table()) {
    out +=
        fmt::format("complete -c preload -n 'test (count (commandline -opc)) -eq 1' -a {} -d {}\n",
                    command.name, quoted(command.summary));
  }
  for (const CommandSpec& command : cli::command_table()) {
    const std::string chosen = fmt::format("-n 'test (__preload_command) = {}'", command.name);
    if (command.positional == "DIR") {
      out += fmt::format("complete -c preload {} -F\n", chosen);
    } else if (!command.positional.empty()) {
      out +=
          fmt::format("complete -c preload {} -a {}\n", chosen, quoted(positional_words(command)));
    }
    for (const OptionSpec& option : cli::option_table()) {
      if (cli::takes(option, command.name)) out += option_line(command, option);
    }
  }
  return out;
}

}  // namespace preload::manual
