// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json_events.hpp"

#include <nlohmann/json.hpp>
#include <utility>

namespace preload {

namespace {

using Json = nlohmann::json;

// The library's message without its exception id: "parse error at line 2, column 7: ...".
std::string without_id(std::string_view text) {
  const std::size_t end = text.substr(0, 1) == "[" ? text.find("] ") : std::string_view::npos;
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

class Adapter final : public nlohmann::json_sax<Json> {
 public:
  explicit Adapter(JsonHandler& handler) : handler_(handler) {}

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }
  bool number_unsigned(number_unsigned_t value) override {
    handler_.number(value);
    return true;
  }
  bool string(string_t& value) override {
    handler_.string(value);
    return true;
  }
  bool key(string_t& name) override {
    handler_.key(name);
    return true;
  }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    error_ = without_id(error.what());
    return false;
  }

  std::optional<std::string> take_error() { return std::exchange(error_, std::nullopt); }

 private:
  bool other() {
    handler_.other();
    return true;
  }
  bool open(bool object) {
    handler_.open(object);
    return true;
  }
  bool close() {
    handler_.close();
    return true;
  }

  JsonHandler& handler_;
  std::optional<std::string> error_;
};

class Deaf final : public JsonHandler {
 public:
  void open(bool) override {}
  void close() override {}
  void key(std::string&) override {}
  void string(std::string&) override {}
  void number(std::uint64_t) override {}
  void other() override {}
};

}  // namespace

std::optional<std::string> parse_json(std::string_view text, JsonHandler& handler) {
  Adapter adapter(handler);
  Json::sax_parse(text, &adapter);
  return adapter.take_error();
}

std::optional<std::string> json_syntax_error(std::string_view text) {
  Deaf deaf;
  return parse_json(text, deaf);
}

}  // namespace preload
