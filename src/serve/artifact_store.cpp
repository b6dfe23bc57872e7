// SPDX-License-Identifier: Apache-2.0
#include "serve/artifact_store.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/log.hpp"

namespace preload {

wire::PutArtifactReply ArtifactStore::put(const wire::PutArtifactRequest& request, Fd content) {
  if (!wire::holds_artifact(content.get(), request.bytes))
    throw Error(Errc::kProtocol,
                fmt::format("artifact '{}' must come as a sealed memfd of {} bytes", request.key,
                            request.bytes));
  const auto old = artifacts_.find(request.key);
  const bool replaces = old != artifacts_.end();
  if (replaces) forget(old);
  while (!used_.empty() &&
         (artifacts_.size() >= limits_.count || bytes_ + request.bytes > limits_.bytes)) {
    log::info(fmt::format("artifact '{}' makes room for '{}'", used_.back(), request.key));
    forget(artifacts_.find(used_.back()));
  }
  used_.push_front(request.key);
  artifacts_[request.key] = {std::move(content), request.bytes, request.metadata, used_.begin()};
  bytes_ += request.bytes;
  log::info(fmt::format("artifact '{}' of {} is kept", request.key, format_bytes(request.bytes)));
  return {replaces};
}

wire::GetArtifactReply ArtifactStore::get(const wire::GetArtifactRequest& request,
                                          std::vector<Fd>& fds) {
  const auto found = artifacts_.find(request.key);
  if (found == artifacts_.end()) return {};
  const Artifact& artifact = found->second;
  used_.splice(used_.begin(), used_, artifact.use);
  fds.push_back(duplicate(artifact.content.get()));
  return {true, artifact.bytes, artifact.metadata};
}

void ArtifactStore::forget(Artifacts::iterator artifact) {
  bytes_ -= artifact->second.bytes;
  used_.erase(artifact->second.use);
  artifacts_.erase(artifact);
}

}  // namespace preload
