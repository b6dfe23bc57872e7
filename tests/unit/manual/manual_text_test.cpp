// SPDX-License-Identifier: Apache-2.0
#include "manual/manual_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "cli/option_table.hpp"
#include "cli/options.hpp"
#include "manual/man_page.hpp"

namespace preload::manual::test {
namespace {

using testing::HasSubstr;

TEST(ManualText, EveryCommandHasADescriptionAnExampleAndExitStatuses) {
  for (const cli::CommandSpec& command : cli::command_table()) {
    EXPECT_TRUE(std::ranges::any_of(command_texts(), [&](const CommandText& text) {
      return text.command == command.name && !text.description.empty();
    })) << command.name;
    EXPECT_TRUE(std::ranges::any_of(examples(), [&](const Example& example) {
      return example.command == command.name;
    })) << command.name;
    for (const std::string_view status : {"0", "2"}) {
      EXPECT_TRUE(std::ranges::any_of(exit_statuses(),
                                      [&](const Entry& entry) {
                                        return entry.name == status &&
                                               lists(entry.commands, command.name);
                                      }))
          << command.name << " " << status;
    }
  }
}

TEST(ManualText, NamesNoCommandThatIsNotThere) {
  for (const CommandText& text : command_texts()) {
    EXPECT_NE(cli::find_command(text.command), nullptr) << text.command;
  }
  for (const auto entries : {exit_statuses(), variables(), files()}) {
    for (const Entry& entry : entries) {
      std::istringstream commands{std::string(entry.commands)};
      for (std::string command; commands >> command;) {
        EXPECT_NE(cli::find_command(command), nullptr) << entry.name << ": " << command;
      }
    }
  }
}

// What stands behind "preload" in an example, up to the next command of the shell.
std::vector<std::string> arguments_of(const Example& example) {
  std::istringstream words{std::string(example.line)};
  std::vector<std::string> out;
  bool ours = false;
  for (std::string word; words >> word && word != "&&" && word != "&";) {
    if (ours) out.push_back(word);
    if (word == "preload") ours = true;
  }
  return out;
}

TEST(ManualText, EveryExampleIsACommandLineThatIsTaken) {
  for (const Example& example : examples()) {
    std::vector<std::string> arguments = arguments_of(example);
    ASSERT_FALSE(arguments.empty()) << example.line;
    std::string command = "serve";
    if (!arguments.front().starts_with('-')) {
      command = arguments.front();
      arguments.erase(arguments.begin());
    }
    EXPECT_EQ(command, example.command) << example.line;
    EXPECT_NO_THROW(cli::ParsedOptions(command, arguments)) << example.line;
  }
}

TEST(ManPage, HasEveryOptionOfItsCommandAndNoOther) {
  for (const cli::CommandSpec& command : cli::command_table()) {
    const std::string page = man_page(command.name, "2026-01-02");
    for (const cli::OptionSpec& option : cli::option_table()) {
      std::string roff = "\\fB\\-\\-";
      for (const char c : option.name) roff += c == '-' ? "\\-" : std::string(1, c);
      roff += "\\fR";
      const bool elsewhere = std::ranges::any_of(cli::option_table(), [&](const auto& other) {
        return other.name == option.name && cli::takes(other, command.name);
      });
      EXPECT_EQ(page.find(roff) != std::string::npos, elsewhere) << command.name << option.name;
    }
  }
}

TEST(ManPage, OfPreloadItselfNamesEveryCommand) {
  const std::string page = man_page("", "2026-01-02");
  EXPECT_THAT(page, HasSubstr(".TH PRELOAD 1 \"2026-01-02\" \"preload " PRELOAD_VERSION "\""));
  for (const cli::CommandSpec& command : cli::command_table()) {
    EXPECT_THAT(page, HasSubstr("preload\\-" + std::string(command.name)));
  }
}

}  // namespace
}  // namespace preload::manual::test
