// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "artifact/tier.hpp"

namespace preload::artifact {

// What the disk tier keeps beside a content: the metadata, length and hash, as JSON in a file that
// is named after both, so that several versions of an entry can have theirs for a moment.
struct DiskRecord {
  std::uint64_t bytes = 0;
  std::string sha256;
  Metadata metadata;
  std::string host;
  std::time_t created = 0;
  friend bool operator==(const DiskRecord&, const DiskRecord&) = default;
};

std::string record_name(std::string_view filename, std::string_view sha256);
// Whether `name` is that of a record of `filename`, whatever the content.
bool is_record_of(std::string_view name, std::string_view filename);

std::string to_json(const DiskRecord& record);
std::optional<DiskRecord> record_from_json(std::string_view text);  // nothing when it is none

Entry entry_of(const Key& key, DiskRecord record, std::time_t used);

}  // namespace preload::artifact
