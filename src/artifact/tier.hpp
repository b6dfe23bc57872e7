// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/environment.hpp"
#include "artifact/key.hpp"
#include "base/fd.hpp"

namespace preload::artifact {

// What is recorded beside an artifact.
struct Metadata {
  Environment environment;                    // compared before use
  std::map<std::string, std::string> labels;  // for people: model, tree, config; never compared
  friend bool operator==(const Metadata&, const Metadata&) = default;
};

struct Entry {
  Key key;
  std::uint64_t bytes = 0;
  std::string sha256;  // of the content
  Metadata metadata;
  std::string host;  // that made it
  std::time_t created = 0;
  std::time_t used = 0;  // last
  friend bool operator==(const Entry&, const Entry&) = default;
};

// A content that was verified: complete, of the recorded hash.
struct Found {
  Entry entry;
  Fd content;        // readable, at its start; what replaces the entry later does not change it
  std::string path;  // where it lies, "" in tiers that have no files

  std::string text() const;  // all of it; throws Error when it cannot be read
};

enum class Put {
  kStored,
  kPresent,   // the very same was there
  kConflict,  // something else was there and stays: other environment, or other content
  kFailed,    // full disk, no permission …: what was there stays
};
enum class Overwrite {
  kNever,
  kSameEnvironment,  // a newer content made under the same environment takes the older one's place
};

// A place where artifacts are kept: the disk; shared stores and other daemons have the same keys.
// No call throws for what the place does, Cancelled apart where it was given one: it logs one line
// that says what happened, and the caller goes on with the work that the artifact would have saved.
// Safe between processes and threads.
class Tier {
 public:
  virtual ~Tier() = default;

  // Nothing when it is not there (silently), is damaged, or was made under another environment.
  virtual std::optional<Found> get(const Key& key, const Environment& here) = 0;
  // Takes the whole of the file, pipe or memfd `content`, from where it stands. What was there is
  // intact until the new one is complete; a damaged entry is replaced whatever `overwrite` says.
  virtual Put put(const Key& key, int content, const Metadata& metadata,
                  Overwrite overwrite = Overwrite::kNever) = 0;
  // Entries by key, those of one kind or ("") all; contents are not read.
  virtual std::vector<Entry> list(std::string_view kind = {}) = 0;

  // The same with the content in memory.
  Put put_bytes(const Key& key, std::string_view bytes, const Metadata& metadata,
                Overwrite overwrite = Overwrite::kNever);
};

}  // namespace preload::artifact
