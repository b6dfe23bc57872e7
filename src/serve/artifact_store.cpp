// SPDX-License-Identifier: Apache-2.0
#include "serve/artifact_store.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <ranges>
#include <utility>

#include "base/log.hpp"

namespace preload {
namespace {

struct stat stat_of(const Artifact& artifact) {
  struct stat info {};
  check_sys(::fstat(artifact.content.get(), &info), "looking at an artifact");
  return info;
}

}  // namespace

Artifact take_artifact(wire::Frame frame) {
  Artifact artifact{wire::put_artifact_request_from_json(frame.body), {}};
  if (frame.fds.size() != 1)
    throw Error(Errc::kProtocol, "put_artifact must come with one descriptor, of its content");
  artifact.content = std::move(frame.fds.front());
  return artifact;
}

bool is_same_content(const Artifact& one, const Artifact& other) {
  const struct stat a = stat_of(one), b = stat_of(other);
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

ArtifactStore::PutResult ArtifactStore::put(Artifact artifact) {
  const wire::PutArtifactRequest& about = artifact.about;
  if (!wire::holds_artifact(artifact.content.get(), about.bytes))
    throw Error(Errc::kProtocol,
                fmt::format("artifact '{}' must come as a sealed memfd of {} bytes", about.key,
                            about.bytes));
  PutResult result;
  result.replaced = find(about.key) != nullptr;
  forget(about.key);
  while (!entries_.empty() && !has_room_for(about)) {
    std::string& key = entries_.back().artifact.about.key;
    log::info(fmt::format("artifact '{}' makes room for '{}'", key, about.key));
    result.forgotten.push_back(key);
    forget(result.forgotten.back());
  }
  bytes_ += about.bytes;
  metadata_bytes_ += about.metadata.size();
  entries_.push_front({std::move(artifact), ++puts_});
  by_key_[entries_.front().artifact.about.key] = entries_.begin();
  return result;
}

bool ArtifactStore::has_room_for(const wire::PutArtifactRequest& about) const noexcept {
  return entries_.size() < limits_.count && bytes_ + about.bytes <= limits_.bytes &&
         metadata_bytes_ + about.metadata.size() <= limits_.metadata_bytes;
}

wire::GetArtifactReply ArtifactStore::get(const wire::GetArtifactRequest& request,
                                          std::vector<Fd>& fds) {
  const auto found = by_key_.find(request.key);
  if (found == by_key_.end()) return {};
  const Artifact& artifact = found->second->artifact;
  entries_.splice(entries_.begin(), entries_, found->second);
  fds.push_back(duplicate(artifact.content.get()));
  return {true, artifact.about.bytes, artifact.about.metadata};
}

void ArtifactStore::forget(std::string_view key) {
  const auto found = by_key_.find(key);
  if (found == by_key_.end()) return;
  const auto entry = found->second;
  by_key_.erase(found);
  bytes_ -= entry->artifact.about.bytes;
  metadata_bytes_ -= entry->artifact.about.metadata.size();
  entries_.erase(entry);
}

const Artifact* ArtifactStore::find(std::string_view key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? nullptr : &found->second->artifact;
}

std::vector<const Artifact*> ArtifactStore::put_since(std::uint64_t puts) const {
  std::vector<const Artifact*> found;
  for (const Entry& entry : std::views::reverse(entries_))
    if (entry.number > puts) found.push_back(&entry.artifact);
  return found;
}

std::vector<Artifact> ArtifactStore::duplicates() const {
  std::vector<Artifact> copies;
  for (const Artifact* artifact : put_since(0))
    copies.push_back({artifact->about, duplicate(artifact->content.get())});
  return copies;
}

}  // namespace preload
