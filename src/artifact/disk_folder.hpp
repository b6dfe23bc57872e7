// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "artifact/disk_record.hpp"
#include "artifact/key.hpp"
#include "base/fd.hpp"

namespace preload::artifact {

// The folders of a disk tier: <root>/<kind>/<config-hash>/.

// Empty when it is not there and not to be made. Throws Error when it cannot be opened, or when
// others may write to it: what lies there is run.
Fd open_root(const std::string& root, bool create);
// The folder of the key's entry; the same.
Fd open_folder(int root, const Key& key, bool create);

std::vector<std::string> names_in(int folder);  // sorted, without "." and ".."

// A content as it lies there, not read.
struct DiskFile {
  Key key;
  std::uint64_t bytes = 0;
  std::time_t used = 0;
  std::optional<DiskRecord> record;  // one of its length; nothing when the entry is damaged
};
// By key, those of one kind or ("") all.
std::vector<DiskFile> files_below(int root, std::string_view kind);

// One writer at a time publishes or removes. Where the file system has no locks there is none, and
// entries are published by renames that replace nothing.
class RootLock {
 public:
  explicit RootLock(int root);  // throws Error(kTimeout) when another has it for a minute

 private:
  Fd fd_;
};

}  // namespace preload::artifact
