// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to .cpp files: reading untrusted JSON objects member by member.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace preload::wire {

// Deep nesting would exhaust memory or the stack; no message needs more.
inline constexpr int kMaxJsonDepth = 16;

// Throws Error(code) with the position when `text` is malformed or nested too deeply.
nlohmann::json parse_json(std::string_view text, std::string_view what, Errc code);
// Invalid UTF-8 (a path from the file system) becomes U+FFFD.
std::string dump_json(const nlohmann::json& value);

// A view of one object. The readers throw Error(code) that names the object and the member.
class JsonObject {
 public:
  JsonObject(const nlohmann::json& value, std::string what, Errc code = Errc::kProtocol);

  const nlohmann::json* find(const char* name) const;  // nullptr when absent or null
  const nlohmann::json& at(const char* name) const;
  std::string text(const char* name) const;
  std::string text_or(const char* name, std::string fallback) const;
  std::optional<std::string> optional_text(const char* name) const;
  std::uint64_t unsigned_number(const char* name) const;
  int small_number(const char* name) const;  // of an int
  int small_number_or(const char* name, int fallback) const;
  double number(const char* name) const;
  bool flag_or(const char* name, bool fallback) const;
  const nlohmann::json& array(const char* name) const;
  [[noreturn]] void reject(const char* name, std::string_view expected) const;
  const nlohmann::json& value() const noexcept { return value_; }

 private:
  const nlohmann::json& value_;
  std::string what_;
  Errc code_;
};

}  // namespace preload::wire
