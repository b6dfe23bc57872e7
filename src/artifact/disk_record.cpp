// SPDX-License-Identifier: Apache-2.0
#include "artifact/disk_record.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace preload::artifact {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr std::size_t kHashDigits = 16;
constexpr std::string_view kSuffix = ".meta";

bool is_text_map(const json& value) {
  if (!value.is_object()) return false;
  for (const auto& [name, text] : value.items()) {
    if (!text.is_string()) return false;
  }
  return true;
}

}  // namespace

std::string record_name(std::string_view filename, std::string_view sha256) {
  return fmt::format(".{}.{}{}", filename, sha256.substr(0, kHashDigits), kSuffix);
}

bool is_record_of(std::string_view name, std::string_view filename) {
  return name.size() == filename.size() + kHashDigits + kSuffix.size() + 2 &&
         name.starts_with('.') && name.substr(1).starts_with(filename) &&
         name[filename.size() + 1] == '.' && name.ends_with(kSuffix);
}

std::string to_json(const DiskRecord& record) {
  const json value{{"version", kVersion},
                   {"bytes", record.bytes},
                   {"sha256", record.sha256},
                   {"environment", record.metadata.environment},
                   {"labels", record.metadata.labels},
                   {"host", record.host},
                   {"created", record.created}};
  return value.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<DiskRecord> record_from_json(std::string_view text) {
  const json value = json::parse(text, nullptr, false);
  if (!value.is_object() || !value.contains("version") || value["version"] != kVersion) return {};
  for (const char* name : {"bytes", "created"}) {
    if (!value.contains(name) || !value[name].is_number_integer()) return {};
  }
  for (const char* name : {"sha256", "host"}) {
    if (!value.contains(name) || !value[name].is_string()) return {};
  }
  for (const char* name : {"environment", "labels"}) {
    if (!value.contains(name) || !is_text_map(value[name])) return {};
  }
  if (value["bytes"] < 0) return {};
  DiskRecord record;
  record.bytes = value["bytes"].get<std::uint64_t>();
  record.sha256 = value["sha256"].get<std::string>();
  record.metadata.environment = value["environment"].get<Environment>();
  record.metadata.labels = value["labels"].get<std::map<std::string, std::string>>();
  record.host = value["host"].get<std::string>();
  record.created = value["created"].get<std::time_t>();
  return record;
}

Entry entry_of(const Key& key, DiskRecord record, std::time_t used) {
  return {key,
          record.bytes,
          std::move(record.sha256),
          std::move(record.metadata),
          std::move(record.host),
          record.created,
          used};
}

}  // namespace preload::artifact
