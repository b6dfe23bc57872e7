// SPDX-License-Identifier: Apache-2.0
#include "manual/man_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/exit_table.hpp"
#include "cli/option_table.hpp"
#include "manual/manual_text.hpp"
#include "manual/roff.hpp"

namespace preload::manual {
namespace {

using cli::CommandSpec;
using cli::OptionSpec;

// preload(1) tells of everything, the others of what concerns them.
bool concerns(const Entry& entry, std::string_view command) {
  return command.empty() || lists(entry.commands, command);
}

void name_section(Roff& page, std::string_view command, std::string_view summary) {
  page.section("NAME");
  page.line(fmt::format("{} \\- {}", literal(page_name(command)), literal(summary)));
}

void synopsis(Roff& page, const CommandSpec& spec) {
  page.section("SYNOPSIS");
  std::string line = bold("preload ") + bold(spec.name);
  if (spec.name == "serve") line = bold("preload") + " [" + bold("serve") + "]";
  if (!spec.positional.empty()) {
    // A word in lower case is typed as it is.
    const bool typed = std::islower(static_cast<unsigned char>(spec.positional.front())) != 0;
    line += " " + (typed ? bold(spec.positional) : italic(spec.positional));
  }
  page.line(line + " [" + italic("OPTION") + "]...");
}

std::string option_tag(const OptionSpec& option) {
  std::string tag;
  if (!option.abbreviation.empty()) tag = bold(fmt::format("-{}", option.abbreviation)) + ", ";
  tag += bold(fmt::format("--{}", option.name));
  if (!option.value.empty()) tag += " " + italic(option.value);
  return tag;
}

void options_section(Roff& page, std::string_view command) {
  page.section("OPTIONS");
  page.paragraphs("The default, where there is one, stands in brackets.");
  for (const OptionSpec& option : cli::option_table()) {
    if (cli::takes(option, command)) page.entry(option_tag(option), option.help);
  }
  page.entry(bold("-h") + ", " + bold("--help"), "print the options and exit");
}

void commands_section(Roff& page) {
  page.section("COMMANDS");
  for (const CommandSpec& command : cli::command_table()) {
    page.entry(bold(page_name(command.name)) + "(1)", command.summary);
  }
  page.paragraphs(
      "\n\n'preload --version' prints the version, 'preload COMMAND --help' the "
      "options of a command.");
}

void exit_section(Roff& page, std::string_view command) {
  page.section("EXIT STATUS");
  if (command.empty()) {
    for (const cli::ExitStatus& row : cli::exit_table()) page.entry(bold(row.status), row.text);
    return;
  }
  for (const Entry& row : exit_statuses()) {
    if (lists(row.commands, command)) page.entry(bold(row.name), row.text);
  }
}

void entries_section(Roff& page, std::string_view heading, std::span<const Entry> entries,
                     std::string_view command) {
  if (std::ranges::none_of(entries, [&](const Entry& e) { return concerns(e, command); })) return;
  page.section(heading);
  for (const Entry& entry : entries) {
    if (concerns(entry, command)) page.entry(bold(entry.name), entry.text);
  }
}

void examples_section(Roff& page, std::string_view command) {
  page.section("EXAMPLES");
  for (const Example& example : examples()) {
    if (command.empty() || example.command == command) page.example(example.purpose, example.line);
  }
}

void see_also(Roff& page, std::string_view command) {
  page.section("SEE ALSO");
  std::string line;
  const auto add = [&](std::string_view other) {
    if (!line.empty()) line += ",\n";
    line += bold(page_name(other)) + "(1)";
  };
  if (!command.empty()) add("");
  for (const CommandSpec& other : cli::command_table()) {
    if (other.name != command) add(other.name);
  }
  page.line(line);
}

}  // namespace

std::string page_name(std::string_view command) {
  return command.empty() ? "preload" : fmt::format("preload-{}", command);
}

std::string man_page(std::string_view command, std::string_view date) {
  Roff page;
  page.line(".\\\" SPDX-License-Identifier: Apache-2.0");
  page.title(page_name(command), date, "preload " PRELOAD_VERSION);
  const CommandSpec* spec = cli::find_command(command);
  name_section(page, command,
               spec == nullptr ? "keep LLM weights resident in GPU memory" : spec->summary);
  if (spec == nullptr) {
    page.section("SYNOPSIS");
    page.line(bold("preload") + " [" + italic("COMMAND") + "] [" + italic("OPTION") + "]...");
  } else {
    synopsis(page, *spec);
  }
  page.section("DESCRIPTION");
  if (spec == nullptr) page.paragraphs(overview());
  for (const CommandText& text : command_texts()) {
    if (spec != nullptr && text.command == command) page.paragraphs(text.description);
  }
  if (spec == nullptr) {
    commands_section(page);
  } else {
    options_section(page, command);
  }
  exit_section(page, command);
  entries_section(page, "ENVIRONMENT", variables(), command);
  entries_section(page, "FILES", files(), command);
  examples_section(page, command);
  see_also(page, command);
  return page.text();
}

}  // namespace preload::manual
