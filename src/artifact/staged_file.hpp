// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/cancel.hpp"
#include "base/fd.hpp"

namespace preload::artifact {

// A file on its way to its name, in the folder where it will lie. Its writer holds a lock on it, so
// that others can tell what a writer left that is gone, also after -9.
class StagedFile {
 public:
  // Throws Error when it cannot be made.
  explicit StagedFile(int folder);
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  ~StagedFile();  // gone, unless it has its name

  int fd() const noexcept { return fd_.get(); }
  void sync();  // which may take long
  // Both sync first, so that a name never leads to less than everything.
  bool link_as(const std::string& name);  // false where something has that name
  void replace(const std::string& name);  // whatever had that name
  // What a copy of `content` (file, pipe or memfd, from where it stands) came to.
  struct Copied {
    std::uint64_t bytes = 0;
    std::string sha256;
  };
  Copied copy(int content, const Cancel* cancel = nullptr);

 private:
  int folder_;
  std::string name_;
  Fd fd_;
};

// Removes the temporaries of `folder` whose writers are gone; where the file system has no locks,
// those of more than a day ago.
void remove_stale_temporaries(int folder) noexcept;
bool is_temporary(const std::string& name) noexcept;

}  // namespace preload::artifact
