// SPDX-License-Identifier: Apache-2.0
#include "artifact/held_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

namespace preload::artifact {
namespace {

constexpr int kFile = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

// 0, or the error that says why not: EWOULDBLOCK where another has the lock.
int try_lock(int fd, int kind) {
  while (::flock(fd, kind | LOCK_NB) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

}  // namespace

Fd hold_file(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | kFile));
  struct stat status {};
  if (!fd || try_lock(fd.get(), LOCK_SH) == EWOULDBLOCK) return {};
  if (::fstat(fd.get(), &status) != 0 || status.st_nlink == 0) return {};
  return fd;
}

Removal begin_removal(int folder, const std::string& filename) {
  // NFS locks exclusively only what is open for writing.
  Fd fd(::openat(folder, filename.c_str(), O_RDWR | kFile));
  if (!fd) fd = Fd(::openat(folder, filename.c_str(), O_RDONLY | kFile));
  if (!fd) return {};  // the removal says what is in the way
  if (try_lock(fd.get(), LOCK_EX) == EWOULDBLOCK) return {true, Fd()};
  return {false, std::move(fd)};
}

}  // namespace preload::artifact
