// SPDX-License-Identifier: Apache-2.0
#include "cli/normalise.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "cli/engine_flags.hpp"
#include "cli/option_table.hpp"
#include "cli/options.hpp"
#include "cli/replaced_flags.hpp"

namespace preload::cli {
namespace {

// One argument that begins with a dash, taken apart.
struct Spelling {
  bool is_long = false;
  std::string name;                  // '-' for '_', without a dotted path
  std::optional<std::string> path;   // behind the first dot
  std::optional<std::string> value;  // behind '='
};

Spelling take_apart(const std::string& argument) {
  Spelling spelling;
  spelling.is_long = argument[1] == '-';
  std::string name = argument.substr(spelling.is_long ? 2 : 1);
  if (const std::size_t equals = name.find('='); equals != std::string::npos) {
    spelling.value = name.substr(equals + 1);
    name.resize(equals);
  }
  if (const std::size_t dot = name.find('.'); dot != std::string::npos) {
    spelling.path = name.substr(dot + 1);
    name.resize(dot);
  }
  std::replace(name.begin(), name.end(), '_', '-');
  spelling.name = std::move(name);
  return spelling;
}

const OptionSpec* find_option(std::string_view command, std::string_view name, bool is_long) {
  if (name.empty()) return nullptr;
  for (const OptionSpec& option : option_table()) {
    if ((is_long ? option.name : option.abbreviation) == name && takes(option, command)) {
      return &option;
    }
  }
  return nullptr;
}

[[noreturn]] void refuse_unknown(std::string_view command, const std::string& argument,
                                 const std::string& name) {
  std::vector<std::string> known;
  for (const OptionSpec& option : option_table()) {
    if (takes(option, command)) known.emplace_back(option.name);
  }
  const std::optional<std::string> near = nearest(name, known);
  throw Error(
      Errc::kUsage,
      fmt::format("unknown option {} of 'preload {}'{}; see 'preload {} --help'", argument, command,
                  near ? fmt::format(": did you mean --{}?", *near) : "", command));
}

// How many arguments behind this one belong to a flag of the engine's that is not taken, where what
// it says holds without it too. Nothing for other flags; throws where it says something else.
std::optional<std::size_t> skip_foreign_flag(std::string_view command, const Spelling& spelling,
                                             const std::vector<std::string>& arguments,
                                             std::size_t at) {
  if (find_option(command, "model", true) == nullptr) return std::nullopt;
  const EngineFlag* flag = find_engine_flag(spelling.name, spelling.is_long);
  const bool takes_next =
      !spelling.value && (flag == nullptr || !flag->is_switch) && at + 1 < arguments.size();
  const std::optional<std::string> value =
      takes_next ? std::optional(arguments[at + 1]) : spelling.value;
  if (flag != nullptr) {
    if (is_neutral(*flag, spelling.path, value)) return takes_next ? 1 : 0;
    throw Error(Errc::kUsage, fmt::format("--{} is refused: {}", flag->name, flag->because));
  }
  const ReplacedFlag* replaced = spelling.is_long ? find_replaced_flag(spelling.name) : nullptr;
  if (replaced == nullptr) return std::nullopt;
  if (value && !replaced->neutral.empty() && *value == replaced->neutral) return takes_next ? 1 : 0;
  refuse_replaced_flag(command, *replaced, arguments);
}

// "--no-NAME", as vLLM spells a switch that is off: the switch's name.
std::optional<std::string> switched_off(std::string_view command, const Spelling& spelling) {
  if (!spelling.is_long || spelling.value || !spelling.name.starts_with("no-")) return std::nullopt;
  std::string name = spelling.name.substr(3);
  const OptionSpec* option = find_option(command, name, true);
  const EngineFlag* flag = find_engine_flag(name, true);
  const bool known = option != nullptr ? option->value.empty() : flag != nullptr && flag->is_switch;
  return known ? std::optional(std::move(name)) : std::nullopt;
}

const OptionSpec& known_option(std::string_view command, const std::string& argument,
                               const Spelling& spelling) {
  const OptionSpec* option = find_option(command, spelling.name, spelling.is_long);
  if (option == nullptr || (spelling.path && option->value != "JSON")) {
    refuse_unknown(command, argument, spelling.name);
  }
  return *option;
}

// "true" or "false", however it was written.
std::string_view switch_value(const OptionSpec& option, const Spelling& spelling) {
  if (!spelling.value || is_on(*spelling.value)) return "true";
  if (is_off(*spelling.value)) return "false";
  throw Error(Errc::kUsage, fmt::format("--{} is a switch: give it alone, or with =true or =false, "
                                        "not ={}",
                                        option.name, *spelling.value));
}

nlohmann::json json_or_text(const std::string& text) {
  nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  return value.is_discarded() ? nlohmann::json(text) : value;
}

}  // namespace

Normalised normalise(std::string_view command, const std::vector<std::string>& arguments) {
  Normalised out;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      out.arguments.insert(out.arguments.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                           arguments.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      out.arguments.push_back(argument);
      continue;
    }
    Spelling spelling = take_apart(argument);
    if (const auto name = switched_off(command, spelling)) {
      spelling.name = *name;
      spelling.value = "false";
    }
    if (find_option(command, spelling.name, spelling.is_long) == nullptr) {
      if (const auto behind = skip_foreign_flag(command, spelling, arguments, i)) {
        i += *behind;
        continue;
      }
    }
    const OptionSpec& option = known_option(command, argument, spelling);
    if (!spelling.value && !option.value.empty()) {
      if (++i == arguments.size()) {
        throw Error(Errc::kUsage,
                    fmt::format("{} needs a value: --{} {}", argument, option.name, option.value));
      }
      spelling.value = arguments[i];
    }
    if (spelling.path) {
      out.dotted.push_back(
          {std::string(option.name), *spelling.path, json_or_text(*spelling.value)});
    } else if (option.value.empty()) {
      out.arguments.push_back(fmt::format("--{}={}", option.name, switch_value(option, spelling)));
    } else {
      // Apart: cxxopts does not look for '=' across the lines of a value.
      out.arguments.push_back(fmt::format("--{}", option.name));
      out.arguments.push_back(*spelling.value);
    }
  }
  return out;
}

}  // namespace preload::cli
