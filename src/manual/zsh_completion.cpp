// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/option_table.hpp"
#include "manual/choices.hpp"
#include "manual/completion.hpp"

namespace preload::manual {
namespace {

using cli::CommandSpec;
using cli::OptionSpec;

// For an explanation in a specification of _arguments, within single quotes.
std::string explained(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string action(const OptionSpec& option) {
  switch (value_kind(option)) {
    case ValueKind::kNone:
      return {};
    case ValueKind::kWords:
      return fmt::format(":{}:({})", explained(option.value), value_words(option.name));
    case ValueKind::kPath:
      return fmt::format(":{}:_files", explained(option.value));
    case ValueKind::kFree:
      break;
  }
  return fmt::format(":{}: ", explained(option.value));
}

std::string specification(const OptionSpec& option, std::string_view spelling) {
  const std::string exclusive = option.repeats ? "*"
                                : option.abbreviation.empty()
                                    ? ""
                                    : fmt::format("(-{} --{})", option.abbreviation, option.name);
  return fmt::format(" \\\n        '{}{}[{}]{}'", exclusive, spelling, explained(option.help),
                     action(option));
}

std::string command_case(const CommandSpec& command) {
  std::string out = fmt::format("    {})\n      _arguments", command.name);
  for (const OptionSpec& option : cli::option_table()) {
    if (!cli::takes(option, command.name)) continue;
    out += specification(option, fmt::format("--{}", option.name));
    if (!option.abbreviation.empty()) {
      out += specification(option, fmt::format("-{}", option.abbreviation));
    }
  }
  out += " \\\n        '(- *)'{-h,--help}'[print the options]'";
  if (command.positional == "DIR") {
    out += " \\\n        ':DIR:_files -/'";
  } else if (!command.positional.empty()) {
    out += fmt::format(" \\\n        ':what:({})'", positional_words(command));
  }
  return out + "\n      ;;\n";
}

}  // namespace

std::string zsh_completion() {
  std::string out =
      "#compdef preload\n"
      "# SPDX-License-Identifier: Apache-2.0\n"
      "# Completion of preload in zsh, made from its option table.\n"
      "_preload() {\n"
      "  local command=serve\n"
      "  local -a commands=(\n";
  std::string cases;
  for (const CommandSpec& command : cli::command_table()) {
    out += fmt::format("    '{}:{}'\n", command.name, explained(command.summary));
    cases += command_case(command);
  }
  out +=
      "  )\n"
      "  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  if [[ $words[2] != -* ]]; then\n"
      "    command=$words[2]\n"
      "    shift words\n"
      "    (( CURRENT-- ))\n"
      "  fi\n"
      "  case $command in\n" +
      cases +
      "    help) _describe command commands ;;\n"
      "  esac\n"
      "}\n"
      "if [[ $funcstack[1] == _preload ]]; then _preload \"$@\"; else compdef _preload preload; "
      "fi\n";
  return out;
}

}  // namespace preload::manual
