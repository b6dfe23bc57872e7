// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <string_view>

namespace preload {

// Why what lies in a folder is not to be run: somebody else may have put it there. Goes on from the
// folder's name; empty where the folder is this user's or root's, and not everyone may write to it.
std::string_view untrusted_because(const struct stat& folder) noexcept;

}  // namespace preload
