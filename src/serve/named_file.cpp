// SPDX-License-Identifier: Apache-2.0
#include "serve/named_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

namespace preload {

bool is_named(const SocketDir& directory, const std::string& name, int fd) noexcept {
  struct stat named {};
  struct stat ours {};
  return fd >= 0 && ::fstatat(directory.fd(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ::fstat(fd, &ours) == 0 && named.st_ino == ours.st_ino && named.st_dev == ours.st_dev;
}

}  // namespace preload
