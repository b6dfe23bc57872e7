// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace preload {

// The hub cache keeps each file once, under the SHA-256 of its bytes, and links to it from
// snapshots/<commit>. The 64 hex digits of `path`'s blob; empty for a file that no hub cache keeps,
// and for small files, which it keeps under git's digest of something else.
std::string hub_blob(const std::string& path);

}  // namespace preload
