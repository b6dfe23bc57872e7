// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cli/exit_table.hpp"
#include "cli/option_table.hpp"
#include "cli/options.hpp"

namespace preload::cli {
namespace {

constexpr std::size_t kWidth = 80;

// Appends `text` wrapped at kWidth, every line indented; the first starts at column `column`.
void append_wrapped(std::string& out, std::string_view text, std::size_t column,
                    std::size_t indent) {
  if (column + 1 > indent) {
    out += '\n';
    column = 0;
  }
  out.append(indent - column, ' ');
  std::size_t at = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (at > indent && at + 1 + end > kWidth) {
      out += '\n';
      out.append(indent, ' ');
      at = indent;
    } else if (at > indent) {
      out += ' ';
      ++at;
    }
    out += text.substr(0, end);
    at += end;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out += '\n';
}

}  // namespace

std::string help_text() {
  std::string out =
      "Usage: preload [COMMAND] [OPTIONS]\n\n"
      "Keeps the weights of a language model resident in GPU memory, so that an engine\n"
      "that restarts maps them instead of loading them. Without a command: serve.\n\n"
      "Commands:\n";
  for (const CommandSpec& command : command_table()) {
    out += fmt::format("  {}", command.name);
    append_wrapped(out, command.summary, 2 + command.name.size(), 12);
  }
  out +=
      "\n'preload help COMMAND' or 'preload COMMAND --help' lists a command's options.\n"
      "'preload --version' prints the version, 'man preload' says more.\n\n";
  std::string statuses = "Exit status:";
  for (const ExitStatus& row : exit_table()) {
    statuses += fmt::format(" {} {};", row.status, row.text);
  }
  statuses.back() = '.';
  append_wrapped(out, statuses, 0, 0);
  return out;
}

std::string help_text(std::string_view command) {
  const CommandSpec* spec = find_command(command);
  if (spec == nullptr) return help_text();
  std::string out = fmt::format("Usage: preload {}{}{} [OPTIONS]\n\n", spec->name,
                                spec->positional.empty() ? "" : " ", spec->positional);
  append_wrapped(out, spec->summary, 0, 0);
  out += "\nOptions:\n";
  for (const OptionSpec& option : option_table()) {
    if (!takes(option, command)) continue;
    std::string head = "  ";
    if (!option.abbreviation.empty()) head += fmt::format("-{}, ", option.abbreviation);
    head += fmt::format("--{}", option.name);
    if (!option.value.empty()) head += fmt::format(" {}", option.value);
    out += head;
    append_wrapped(out, option.help, head.size(), 34);
  }
  return out;
}

}  // namespace preload::cli
