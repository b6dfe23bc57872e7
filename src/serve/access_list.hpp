// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace preload {

// POSIX access control lists, by the kernel's own attribute (linux/posix_acl_xattr.h): how users
// that are named one by one get at what is nobody else's.
enum class Access : unsigned { kRead = 4, kConnect = 6, kEnter = 5 };  // r--, rw-, r-x

// Gives each user `access` to what lies at `path`, beside what its mode and list allow already;
// nothing where its mode lets everybody. Only the owner and root can. Throws Error(kUsage) naming
// `what` and the remedy where the file system keeps no such lists.
void allow_access(const std::string& path, const std::vector<unsigned>& uids, Access access,
                  const std::string& what);

}  // namespace preload
