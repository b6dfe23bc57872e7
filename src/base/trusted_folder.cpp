// SPDX-License-Identifier: Apache-2.0
#include "base/trusted_folder.hpp"

#include <unistd.h>

namespace preload {

std::string_view untrusted_because(const struct stat& folder) noexcept {
  if (folder.st_uid != ::geteuid() && folder.st_uid != 0) return "is another user's";
  if ((folder.st_mode & S_IWOTH) != 0) return "may be written to by everyone";
  return {};
}

}  // namespace preload
