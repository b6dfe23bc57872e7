// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "cli/option_table.hpp"
#include "manual/choices.hpp"
#include "manual/completion.hpp"

namespace preload::manual {
namespace {

using cli::CommandSpec;
using cli::OptionSpec;

constexpr std::string_view kHead = R"(# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# Completion of preload in bash, made from its option table.
_preload() {
  local command=serve options='' valued='' paths='' words='' positional=''
  local cur=${COMP_WORDS[COMP_CWORD]} prev=''
  ((COMP_CWORD == 0)) || prev=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
)";

// Bash takes --name=value apart at the '='.
constexpr std::string_view kBody = R"(
  if [[ $cur == '=' ]]; then
    cur=''
  elif [[ $prev == '=' ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  prev=${prev//_/-}
  if [[ " $valued " == *" $prev "* ]]; then
    if [[ " $paths " == *" $prev "* ]]; then
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      return
    fi
    case $prev in
)";

constexpr std::string_view kTail = R"(    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  elif [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options --help" -- "$cur")
  elif [[ $positional == DIR ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$cur")
  else
    mapfile -t COMPREPLY < <(compgen -W "$positional" -- "$cur")
  fi
}
complete -F _preload preload
)";

std::string spellings(const OptionSpec& option) {
  std::string text = fmt::format("--{}", option.name);
  if (!option.abbreviation.empty()) text += fmt::format(" -{}", option.abbreviation);
  return text;
}

std::string command_case(const CommandSpec& command) {
  std::string options;
  std::string valued;
  std::string paths;
  for (const OptionSpec& option : cli::option_table()) {
    if (!cli::takes(option, command.name)) continue;
    const auto append = [&](std::string& list) {
      list += fmt::format("{}{}", list.empty() ? "" : " ", spellings(option));
    };
    append(options);
    const ValueKind kind = value_kind(option);
    if (kind != ValueKind::kNone) append(valued);
    if (kind == ValueKind::kPath) append(paths);
  }
  return fmt::format(
      "    {})\n      options='{}'\n      valued='{}'\n      paths='{}'\n      positional='{}'\n"
      "      ;;\n",
      command.name, options, valued, paths, positional_words(command));
}

}  // namespace

std::string bash_completion() {
  std::string commands;
  std::string cases;
  for (const CommandSpec& command : cli::command_table()) {
    commands += fmt::format("{}{}", commands.empty() ? "" : " ", command.name);
    cases += command_case(command);
  }
  std::string out(kHead);
  out += fmt::format(
      "  if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '{0} help' -- \"$cur\")\n"
      "    return\n"
      "  fi\n"
      "  [[ ${{COMP_WORDS[1]}} == -* ]] || command=${{COMP_WORDS[1]}}\n"
      "  case $command in\n{1}"
      "    help) positional='{0}' ;;\n"
      "    *) return ;;\n"
      "  esac",
      commands, cases);
  out += kBody;
  for (const OptionSpec& option : cli::option_table()) {
    // An option may have several rows, one for each meaning.
    const std::string words = value_words(option.name);
    const std::string row = fmt::format("      --{}) words='{}' ;;\n", option.name, words);
    if (!words.empty() && out.find(row) == std::string::npos) out += row;
  }
  return out += kTail;
}

}  // namespace preload::manual
