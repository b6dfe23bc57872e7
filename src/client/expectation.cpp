// SPDX-License-Identifier: Apache-2.0
#include "client/expectation.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace preload::client {
namespace {

using nlohmann::json;

// Takes a member out of the object: what is left is the daemon's to check.
template <class Value>
void take(json& object, const char* name, std::string_view what, Value& value) {
  const auto at = object.find(name);
  if (at == object.end()) return;
  if (!at->is_null()) {
    try {
      at->get_to(value);
    } catch (const json::exception&) {
      throw Error(Errc::kUsage,
                  fmt::format("expect: \"{}\" must be {}, not {}", name, what, at->dump()));
    }
  }
  object.erase(at);
}

}  // namespace

Expectation expectation_from_json(std::string_view text) {
  json object = json::parse(text, nullptr, false);
  if (!object.is_object()) {
    throw Error(Errc::kUsage, fmt::format("expect: must be a JSON object, not {}", text));
  }
  Expectation expect;
  const bool names_model = object.contains("model") && !object.at("model").is_null();
  take(object, "model", "a directory or a hub id", expect.model);
  take(object, "revision", "a text", expect.revision);
  take(object, "trust_sample", "true or false", expect.trust_sample);
  if (names_model && expect.model.empty()) {
    throw Error(Errc::kUsage, "expect: \"model\" is empty: name a directory or a hub id");
  }
  if (expect.trust_sample && expect.model.empty()) {
    throw Error(Errc::kUsage, "expect: \"trust_sample\" is of no use without \"model\"");
  }
  expect.served = wire::expectation_from_json(object.dump(), Errc::kUsage);
  return expect;
}

}  // namespace preload::client
