// SPDX-License-Identifier: Apache-2.0
#include "wire/json_object.hpp"

#include <fmt/format.h>

#include <limits>

namespace preload::wire {

using nlohmann::json;

json parse_json(std::string_view text, std::string_view what, Errc code) {
  const auto check_depth = [&](int depth, json::parse_event_t, json&) {
    if (depth > kMaxJsonDepth)
      throw Error(code, fmt::format("{} is nested more than {} deep", what, kMaxJsonDepth));
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), check_depth);
  } catch (const json::exception& error) {
    throw Error(code, fmt::format("{} is not valid JSON: {}", what, error.what()));
  }
}

std::string dump_json(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

JsonObject::JsonObject(const json& value, std::string what, Errc code)
    : value_(value), what_(std::move(what)), code_(code) {
  if (!value.is_object()) throw Error(code_, fmt::format("{} is not a JSON object", what_));
}

void JsonObject::reject(const char* name, std::string_view expected) const {
  throw Error(code_, fmt::format("{}: member \"{}\" must be {}", what_, name, expected));
}

const json* JsonObject::find(const char* name) const {
  const auto it = value_.find(name);
  return it == value_.end() || it->is_null() ? nullptr : &*it;
}

const json& JsonObject::at(const char* name) const {
  const json* member = find(name);
  if (member == nullptr)
    throw Error(code_, fmt::format("{}: member \"{}\" is missing", what_, name));
  return *member;
}

std::string JsonObject::text(const char* name) const {
  const json& member = at(name);
  if (!member.is_string()) reject(name, "a string");
  return member.get<std::string>();
}

std::optional<std::string> JsonObject::optional_text(const char* name) const {
  if (find(name) == nullptr) return std::nullopt;
  return text(name);
}

std::string JsonObject::text_or(const char* name, std::string fallback) const {
  return find(name) == nullptr ? std::move(fallback) : text(name);
}

std::uint64_t JsonObject::unsigned_number(const char* name) const {
  const json& member = at(name);
  if (!member.is_number_unsigned()) reject(name, "a whole number, not negative");
  return member.get<std::uint64_t>();
}

int JsonObject::small_number(const char* name) const {
  const json& member = at(name);
  if (!member.is_number_integer()) reject(name, "a whole number");
  constexpr std::int64_t kMin = std::numeric_limits<int>::min();
  constexpr std::int64_t kMax = std::numeric_limits<int>::max();
  if (member.is_number_unsigned() && member.get<std::uint64_t>() > std::uint64_t{kMax})
    reject(name, "a whole number of 32 bits");
  const auto number = member.get<std::int64_t>();
  if (number < kMin || number > kMax) reject(name, "a whole number of 32 bits");
  return static_cast<int>(number);
}

int JsonObject::small_number_or(const char* name, int fallback) const {
  return find(name) == nullptr ? fallback : small_number(name);
}

double JsonObject::number(const char* name) const {
  const json& member = at(name);
  if (!member.is_number()) reject(name, "a number");
  return member.get<double>();
}

bool JsonObject::flag_or(const char* name, bool fallback) const {
  const json* member = find(name);
  if (member == nullptr) return fallback;
  if (!member->is_boolean()) reject(name, "true or false");
  return member->get<bool>();
}

const json& JsonObject::array(const char* name) const {
  const json& member = at(name);
  if (!member.is_array()) reject(name, "an array");
  return member;
}

}  // namespace preload::wire
