// SPDX-License-Identifier: Apache-2.0
#include "serve/held_place.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace preload {

std::optional<HeldPlace::Inode> HeldPlace::look() const noexcept {
  struct stat status {};
  if (::fstatat(directory_.fd(), name_.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return std::nullopt;
  return Inode(status.st_dev, status.st_ino);
}

std::optional<int> HeldPlace::holder() const noexcept try {
  return lock_holder(directory_, endpoint_.lock_name());
} catch (const std::exception&) {
  return std::nullopt;  // descriptors have run out
}

// A name that is gone was taken away by somebody who tidies up: nobody else is found there.
bool HeldPlace::is_anothers() const noexcept {
  const std::optional<Inode> found = look();
  if (socket_ && found && *found != *socket_) return true;
  const std::optional<int> now = holder();
  return holder_ && now && *now != *holder_;
}

bool HeldPlace::may_have_successor() const noexcept try {
  return lock_is_held(directory_, endpoint_.next_lock_name());
} catch (const std::exception&) {
  return true;
}

void HeldPlace::remove() noexcept {
  if (!socket_ || look() != socket_) return;
  ::unlinkat(directory_.fd(), name_.c_str(), 0);
}

}  // namespace preload
