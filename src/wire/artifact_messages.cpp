// SPDX-License-Identifier: Apache-2.0
#include "wire/artifact_messages.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/fd.hpp"
#include "wire/message_parts.hpp"

namespace preload::wire {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxKeyLength = 512;

bool is_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

std::string key_member(const JsonObject& object) {
  std::string key = object.text("key");
  check_artifact_key(key, Errc::kProtocol);
  return key;
}

std::string metadata_member(const JsonObject& object) {
  std::string metadata = object.text_or("metadata", "");
  if (metadata.size() > kMaxArtifactMetadataBytes) object.reject("metadata", "at most 64 KiB");
  return metadata;
}

std::uint64_t bytes_member(const JsonObject& object) {
  const std::uint64_t bytes = object.unsigned_number("bytes");
  if (bytes == 0 || bytes > kMaxArtifactBytes) object.reject("bytes", "1 byte to 64 MiB");
  return bytes;
}

}  // namespace

void check_artifact_key(std::string_view key, Errc code) {
  bool fits = key.size() <= kMaxKeyLength;
  for (std::string_view rest = key; fits;) {
    const std::size_t slash = rest.find('/');
    fits = is_name(rest.substr(0, slash));
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  if (fits) return;
  throw Error(code, fmt::format("'{}' is no key of an artifact: names of letters, digits, '.', '_' "
                                "and '-', with '/' between them, at most {} characters",
                                key.substr(0, kMaxKeyLength), kMaxKeyLength));
}

bool holds_artifact(int fd, std::uint64_t bytes) noexcept {
  struct stat info {};
  return is_sealed(fd) && ::fstat(fd, &info) == 0 &&
         static_cast<std::uint64_t>(info.st_size) == bytes;
}

json artifact_json(const PutArtifactRequest& artifact) {
  json out{{"key", artifact.key}, {"bytes", artifact.bytes}};
  if (!artifact.metadata.empty()) out["metadata"] = artifact.metadata;
  return out;
}

PutArtifactRequest artifact_from(const json& value, std::string_view what) {
  const JsonObject object(value, std::string(what));
  return {key_member(object), bytes_member(object), metadata_member(object)};
}

std::string to_json(const PutArtifactRequest& message) { return dump_json(artifact_json(message)); }

std::string to_json(const PutArtifactReply& message) {
  return dump_json({{"replaced", message.replaced}});
}

std::string to_json(const GetArtifactRequest& message) { return dump_json({{"key", message.key}}); }

std::string to_json(const GetArtifactReply& message) {
  json out{{"found", message.found}};
  if (message.found) {
    out["bytes"] = message.bytes;
    out["metadata"] = message.metadata;
  }
  return dump_json(out);
}

PutArtifactRequest put_artifact_request_from_json(std::string_view text) {
  return artifact_from(parse_json(text, "put_artifact", Errc::kProtocol), "put_artifact");
}

PutArtifactReply put_artifact_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "put_artifact reply", Errc::kProtocol);
  return {JsonObject(value, "put_artifact reply").flag_or("replaced", false)};
}

GetArtifactRequest get_artifact_request_from_json(std::string_view text) {
  const json value = parse_json(text, "get_artifact", Errc::kProtocol);
  return {key_member(JsonObject(value, "get_artifact"))};
}

GetArtifactReply get_artifact_reply_from_json(std::string_view text) {
  const json value = parse_json(text, "get_artifact reply", Errc::kProtocol);
  const JsonObject object(value, "get_artifact reply");
  if (!object.flag_or("found", false)) return {};
  return {true, bytes_member(object), metadata_member(object)};
}

}  // namespace preload::wire
