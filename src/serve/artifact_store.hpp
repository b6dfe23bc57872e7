// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "wire/artifact_messages.hpp"
#include "wire/frame.hpp"

namespace preload {

struct Artifact {
  wire::PutArtifactRequest about;
  Fd content;
};

// What a put_artifact brings. Throws Error(kProtocol) when its descriptor is missing.
Artifact take_artifact(wire::Frame frame);
// Whether both are the very memory that one put brought.
bool is_same_content(const Artifact& one, const Artifact& other);

// What engines leave with a daemon for their successors, in memory and in bounds: past them, what
// was not used for longest goes. It belongs to the place, whatever weights are served there.
class ArtifactStore {
 public:
  struct Limits {
    std::uint64_t bytes = 256 << 20;
    std::uint64_t metadata_bytes = 4 << 20;  // so that a list of all of them stays small
    std::size_t count = 1024;
  };
  ArtifactStore() = default;
  explicit ArtifactStore(Limits limits) : limits_(limits) {}

  struct PutResult {
    bool replaced = false;
    std::vector<std::string> forgotten;  // keys that made room
  };
  // Throws Error(kProtocol) when the content is no sealed memfd of the size that is stated.
  PutResult put(Artifact artifact);
  // `fds` receives a duplicate of the content where it was found: an answer may be under way when
  // the artifact goes.
  wire::GetArtifactReply get(const wire::GetArtifactRequest& request, std::vector<Fd>& fds);
  void forget(std::string_view key);

  const Artifact* find(std::string_view key) const;  // without using it
  // Those that were put after so many puts(), the longest unused first: put in this order they are
  // the same store.
  std::vector<const Artifact*> put_since(std::uint64_t puts) const;
  std::vector<Artifact> duplicates() const;              // of all, in that order
  std::uint64_t puts() const noexcept { return puts_; }  // ever

  std::uint64_t bytes() const noexcept { return bytes_; }
  std::size_t size() const noexcept { return by_key_.size(); }

 private:
  struct Entry {
    Artifact artifact;
    std::uint64_t number = 0;  // of its put
  };
  using Entries = std::list<Entry>;
  bool has_room_for(const wire::PutArtifactRequest& about) const noexcept;

  Limits limits_;
  Entries entries_;  // the latest used first
  std::map<std::string, Entries::iterator, std::less<>> by_key_;
  std::uint64_t bytes_ = 0;
  std::uint64_t metadata_bytes_ = 0;
  std::uint64_t puts_ = 0;
};

}  // namespace preload
