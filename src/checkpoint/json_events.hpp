// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace preload {

// What a reader of untrusted JSON wants to hear: events instead of a tree, so that duplicate keys
// are seen and a hostile document cannot make memory grow beyond what the reader keeps.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual void open(bool object) = 0;  // otherwise an array
  virtual void close() = 0;
  virtual void key(std::string& name) = 0;
  virtual void string(std::string& value) = 0;
  virtual void number(std::uint64_t value) = 0;  // an integer in [0, 2^64)
  virtual void other() = 0;                      // null, boolean or any other number
};

// Parses all of `text`. Returns what is wrong with its syntax, with line and column.
std::optional<std::string> parse_json(std::string_view text, JsonHandler& handler);
// The same without listening.
std::optional<std::string> json_syntax_error(std::string_view text);

}  // namespace preload
