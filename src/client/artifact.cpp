// SPDX-License-Identifier: Apache-2.0
#include "client/artifact.hpp"

#include <fmt/format.h>

#include "wire/exchange.hpp"

namespace preload::client {
namespace {

void check_request(const wire::PutArtifactRequest& request) {
  wire::check_artifact_key(request.key, Errc::kUsage);
  if (request.bytes == 0 || request.bytes > wire::kMaxArtifactBytes) {
    throw Error(Errc::kUsage, fmt::format("artifact '{}' is {} bytes: daemons keep 1 to {}",
                                          request.key, request.bytes, wire::kMaxArtifactBytes));
  }
  if (request.metadata.size() > wire::kMaxArtifactMetadataBytes) {
    throw Error(Errc::kUsage,
                fmt::format("the metadata of artifact '{}' is {} bytes: at most {}", request.key,
                            request.metadata.size(), wire::kMaxArtifactMetadataBytes));
  }
}

void check_content(const std::string& key, std::uint64_t bytes, int fd) {
  if (wire::holds_artifact(fd, bytes)) return;
  throw Error(Errc::kProtocol, fmt::format("the daemon sent artifact '{}' in something else than a "
                                           "sealed memfd of the {} bytes that it announced",
                                           key, bytes));
}

}  // namespace

void put_artifact(const ConnectOptions& options, const std::string& key,
                  const std::string& metadata, std::span<const std::byte> content) {
  const wire::PutArtifactRequest request{key, content.size(), metadata};
  check_request(request);
  const Fd memfd = make_memfd("preload-artifact", content.size());
  write_full(memfd.get(), content, "an artifact");
  seal_memfd(memfd.get());
  const Connection connection = connect_daemon(options);
  wire::call_put_artifact(connection.socket.get(), request, memfd.get(),
                          options.connect_timeout_ms);
}

std::optional<Artifact> get_artifact(const ConnectOptions& options, const std::string& key) {
  wire::check_artifact_key(key, Errc::kUsage);
  const Connection connection = connect_daemon(options);
  wire::FoundArtifact found =
      wire::call_get_artifact(connection.socket.get(), {key}, options.connect_timeout_ms);
  if (!found.reply.found) return std::nullopt;
  check_content(key, found.reply.bytes, found.content.get());
  return Artifact{map_fd(found.content.get(), found.reply.bytes, false, "an artifact"),
                  std::move(found.reply.metadata)};
}

}  // namespace preload::client
