// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/fd.hpp"

namespace preload {

// The folder `name` under the cache root ($PRELOAD_CACHE_ROOT, else $XDG_CACHE_HOME/preload, else
// ~/.cache/preload), private to the user. Empty when nothing says where that is, or when it is not
// there and not to be made. Throws std::exception when it cannot be made or opened.
Fd open_cache_dir(const std::string& name, bool create);

}  // namespace preload
