// SPDX-License-Identifier: Apache-2.0
#include "cli/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cxxopts.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cli/normalise.hpp"
#include "cli/option_table.hpp"
#include "serve/peer.hpp"

namespace preload::cli {
namespace {

using nlohmann::json;

// Sets the value at a dotted path, making objects on the way.
void set_dotted(json& object, std::string_view path, json value) {
  json* at = &object;
  while (true) {
    const std::size_t dot = path.find('.');
    const std::string key(path.substr(0, dot));
    if (dot == std::string_view::npos) {
      (*at)[key] = std::move(value);
      return;
    }
    at = &(*at)[key];
    if (!at->is_object()) *at = json::object();
    path.remove_prefix(dot + 1);
  }
}

}  // namespace

ParsedOptions::ParsedOptions(std::string_view command, const std::vector<std::string>& arguments) {
  const Normalised normalised = normalise(command, arguments);
  cxxopts::Options parser("preload");
  for (const OptionSpec& option : option_table()) {
    if (!takes(option, command)) continue;
    const std::string name(option.name);
    if (option.value.empty()) {
      parser.add_options()(name, "", cxxopts::value<bool>());
    } else {
      parser.add_options()(name, "", cxxopts::value<std::string>());
    }
  }
  std::vector<const char*> argv{"preload"};
  for (const std::string& argument : normalised.arguments) argv.push_back(argument.c_str());
  try {
    const cxxopts::ParseResult result = parser.parse(static_cast<int>(argv.size()), argv.data());
    for (const auto& pair : result.arguments()) values_[pair.key()].push_back(pair.value());
    positional_ = result.unmatched();
  } catch (const cxxopts::exceptions::exception& error) {
    throw Error(Errc::kUsage, fmt::format("{}; see 'preload {} --help'", error.what(), command));
  }
  for (const DottedKey& key : normalised.dotted) {
    json object = json::parse(text(key.option).value_or("{}"), nullptr, false);
    if (!object.is_object()) {
      throw Error(Errc::kUsage, fmt::format("--{} must be a JSON object: {}", key.option,
                                            text(key.option).value_or("")));
    }
    set_dotted(object, key.path, key.value);
    values_[key.option] = {object.dump()};
  }
  const CommandSpec* spec = find_command(command);
  const std::size_t expected = spec == nullptr || spec->positional.empty() ? 0 : 1;
  if (positional_.size() > expected) {
    throw Error(Errc::kUsage, fmt::format("unexpected argument '{}' of 'preload {}'",
                                          positional_[expected], command));
  }
}

bool ParsedOptions::has(std::string_view name) const {
  const auto at = values_.find(name);
  return at != values_.end() && at->second.back() != "false";
}

std::optional<std::string> ParsedOptions::text(std::string_view name) const {
  const auto at = values_.find(name);
  if (at == values_.end()) return std::nullopt;
  return at->second.back();
}

std::vector<std::string> ParsedOptions::all(std::string_view name) const {
  const auto at = values_.find(name);
  return at == values_.end() ? std::vector<std::string>{} : at->second;
}

std::optional<double> ParsedOptions::seconds(std::string_view name) const {
  const std::optional<std::string> given = text(name);
  if (!given) return std::nullopt;
  double value = 0;
  const char* end = given->data() + given->size();
  const auto [at, failure] = std::from_chars(given->data(), end, value);
  if (failure != std::errc{} || at != end || !std::isfinite(value) || value < 0) {
    throw Error(Errc::kUsage,
                fmt::format("--{} must be a number of seconds, 0 or more: '{}'", name, *given));
  }
  return value;
}

std::optional<int> ParsedOptions::number(std::string_view name, int least) const {
  const std::optional<std::string> given = text(name);
  if (!given) return std::nullopt;
  int value = 0;
  const char* end = given->data() + given->size();
  const auto [at, failure] = std::from_chars(given->data(), end, value);
  if (failure != std::errc{} || at != end || value < least) {
    throw Error(Errc::kUsage,
                fmt::format("--{} must be a whole number, {} or more: '{}'", name, least, *given));
  }
  return value;
}

std::optional<std::size_t> ParsedOptions::choice(
    std::string_view name, const std::vector<std::string_view>& choices) const {
  const std::optional<std::string> given = text(name);
  if (!given) return std::nullopt;
  const auto at = std::ranges::find(choices, *given);
  if (at == choices.end()) {
    throw Error(Errc::kUsage, fmt::format("--{} must be one of {}: '{}'", name,
                                          fmt::join(choices, ", "), *given));
  }
  return static_cast<std::size_t>(at - choices.begin());
}

SocketDirChoice socket_dir_option(const ParsedOptions& options) {
  SocketDirChoice choice(options.text("weight-cache-socket-dir").value_or(""));
  for (const std::string& text : options.all("allow-uid")) {
    for (const unsigned uid : uids_from_text(text, "--allow-uid")) choice.allow_uids.push_back(uid);
  }
  return choice;
}

ClientOptions client_options(const ParsedOptions& options) {
  ClientOptions client;
  client.socket_dir = socket_dir_option(options);
  client.gpu = options.text("gpu");
  client.slot = options.text("slot");
  if (const auto role = options.choice("role", {"target", "draft"})) {
    client.role = *role == 0 ? Role::kTarget : Role::kDraft;
  }
  client.json = options.has("json");
  client.timeout_s = options.seconds("timeout");
  return client;
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known) {
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    // Levenshtein distance, one row at a time.
    std::vector<std::size_t> row(candidate.size() + 1);
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (std::size_t i = 1; i <= word.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i;
      for (std::size_t j = 1; j < row.size(); ++j) {
        const std::size_t replaced = diagonal + (word[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

}  // namespace preload::cli
