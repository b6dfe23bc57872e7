// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace preload::wire {

// What an engine leaves for its successor with the daemon: tuning tables, caches of compiled code.

inline constexpr std::uint64_t kMaxArtifactBytes = 64 << 20;
inline constexpr std::size_t kMaxArtifactMetadataBytes = 64 << 10;

// "<kind>/<configuration>/<file>" or any other path of names of letters, digits, '.', '_' and '-',
// at most 512 characters. Throws Error(code) that says so.
void check_artifact_key(std::string_view key, Errc code);

// Whether `fd` is a memfd of so many bytes that nobody can change any more.
bool holds_artifact(int fd, std::uint64_t bytes) noexcept;

// With one descriptor: a sealed memfd of `bytes`. What the key had before is replaced.
struct PutArtifactRequest {
  std::string key;
  std::uint64_t bytes = 0;
  std::string metadata;  // of the client's own, handed back as it is
  friend bool operator==(const PutArtifactRequest&, const PutArtifactRequest&) = default;
};
struct PutArtifactReply {
  bool replaced = false;
  friend bool operator==(const PutArtifactReply&, const PutArtifactReply&) = default;
};

struct GetArtifactRequest {
  std::string key;
  friend bool operator==(const GetArtifactRequest&, const GetArtifactRequest&) = default;
};
// With the memfd where it was found.
struct GetArtifactReply {
  bool found = false;
  std::uint64_t bytes = 0;
  std::string metadata;
  friend bool operator==(const GetArtifactReply&, const GetArtifactReply&) = default;
};

std::string to_json(const PutArtifactRequest& message);
std::string to_json(const PutArtifactReply& message);
std::string to_json(const GetArtifactRequest& message);
std::string to_json(const GetArtifactReply& message);
PutArtifactRequest put_artifact_request_from_json(std::string_view text);
PutArtifactReply put_artifact_reply_from_json(std::string_view text);
GetArtifactRequest get_artifact_request_from_json(std::string_view text);
GetArtifactReply get_artifact_reply_from_json(std::string_view text);

}  // namespace preload::wire
