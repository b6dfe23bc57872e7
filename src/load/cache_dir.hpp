// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.hpp"

namespace preload {

// The path of the folder `name` under the cache root ($PRELOAD_CACHE_ROOT, else
// $XDG_CACHE_HOME/preload, else ~/.cache/preload); empty when nothing says where that is.
std::string cache_path(const std::string& name);

// That folder, private to the user. Empty when nothing says where that is, or when it is not
// there and not to be made. Throws std::exception when it cannot be made or opened.
Fd open_cache_dir(const std::string& name, bool create);

// How large such a folder may grow.
struct CacheLimits {
  std::size_t entries = 0;
  std::uint64_t bytes = 0;
};

// Says that an entry was of use: the entry that was not for longest is dropped first.
void mark_used(int folder, const std::string& entry) noexcept;
// Drops entries until the folder is within `limits`, and temporary files that a process which ended
// early has left. The newest entry stays, whatever its size.
void prune_cache(int folder, const CacheLimits& limits);

}  // namespace preload
