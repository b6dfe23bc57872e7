// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace preload::artifact {

// The names of a path below a tree's root; empty when it is absolute, empty, longer than a path may
// be, or has a name that is empty, "." or "..". A '/' at the end is that of a directory.
std::vector<std::string> path_names(std::string_view path);

// Whether a symbolic link that lies `depth` directories below the root stays inside: relative, ".."
// only at its beginning and no more than `depth` of them. Then no chain of such links leads out.
bool link_stays_inside(std::string_view target, std::size_t depth);

}  // namespace preload::artifact
