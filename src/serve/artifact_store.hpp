// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "wire/artifact_messages.hpp"

namespace preload {

// What engines leave with a daemon for their successors, in memory and in bounds: past them, what
// was not used for longest goes.
class ArtifactStore {
 public:
  struct Limits {
    std::uint64_t bytes = 256 << 20;
    std::size_t count = 1024;
  };
  ArtifactStore() = default;
  explicit ArtifactStore(Limits limits) : limits_(limits) {}

  // Throws Error(kProtocol) when `content` is no sealed memfd of the size that the request states.
  wire::PutArtifactReply put(const wire::PutArtifactRequest& request, Fd content);
  // `fds` receives a duplicate of the content where it was found: an answer may be under way when
  // the artifact goes.
  wire::GetArtifactReply get(const wire::GetArtifactRequest& request, std::vector<Fd>& fds);

  std::uint64_t bytes() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return artifacts_.size(); }

 private:
  struct Artifact {
    Fd content;
    std::uint64_t bytes = 0;
    std::string metadata;
    std::list<std::string>::iterator use;
  };
  using Artifacts = std::map<std::string, Artifact, std::less<>>;
  void forget(Artifacts::iterator artifact);

  Limits limits_;
  Artifacts artifacts_;
  std::list<std::string> used_;  // keys, the latest first
  std::uint64_t bytes_ = 0;
};

}  // namespace preload
