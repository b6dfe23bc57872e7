// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/fd.hpp"

namespace preload::artifact {

// The file of an entry that others were told the path of: while the descriptor is open, here or in
// another process, nobody prunes it. Empty where it is gone. Where the file system has no locks it
// is protected by its recent use alone.
Fd hold_file(const std::string& path);

// Before a file is removed: in_use, or locked against a hold until the removal is over.
struct Removal {
  bool in_use = false;
  Fd lock;
};
Removal begin_removal(int folder, const std::string& filename);

}  // namespace preload::artifact
