// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace preload::manual {

// What a manual page says beyond the option table. In texts an empty line separates paragraphs.
struct CommandText {
  std::string_view command;
  std::string_view description;
};

struct Example {
  std::string_view command;  // whose page shows it
  std::string_view purpose;
  std::string_view line;  // as typed, one line
};

// A thing and what it means to some commands, separated by spaces.
struct Entry {
  std::string_view name;
  std::string_view commands;
  std::string_view text;
};

std::string_view overview() noexcept;  // the description of preload(1)
std::span<const CommandText> command_texts() noexcept;
std::span<const Example> examples() noexcept;
std::span<const Entry> exit_statuses() noexcept;  // what a status means for single commands
std::span<const Entry> variables() noexcept;
std::span<const Entry> files() noexcept;

// Whether `list`, words separated by spaces, holds `word`.
bool lists(std::string_view list, std::string_view word) noexcept;

}  // namespace preload::manual
