// SPDX-License-Identifier: Apache-2.0
#include "serve/upkeep.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "serve/named_file.hpp"

namespace preload {
namespace {

// What removes files by their age waits for days.
constexpr auto kTouch = std::chrono::hours(1);
constexpr int kTurnsUntilLost = 2;

}  // namespace

Upkeep::Upkeep(const SocketDir& directory, Names names, int lock,
               std::chrono::milliseconds interval)
    : directory_(directory),
      names_(std::move(names)),
      lock_(lock),
      interval_(interval),
      next_(Clock::now() + interval),
      touched_(Clock::now()) {}

void Upkeep::turn(const std::function<void()>& bind) {
  const auto now = Clock::now();
  if (now < next_) return;
  next_ = now + interval_;
  try {
    // The lock first: nobody else is to come between. Who came may have left a file that is free.
    if (!has_lock() && !lock_is_held(directory_, names_.lock)) take_lock_again();
    look_for_another();
    if (!is_there(names_.socket) && has_lock()) {
      log::warn(
          fmt::format("'{}/{}' was removed while it is in use, and is made anew: find out "
                      "who tidies up there",
                      directory_.path(), names_.socket));
      bind();
    }
    failed_ = false;
  } catch (const Error& error) {
    if (!std::exchange(failed_, true))
      log::error(fmt::format("what was removed from the socket directory is not made anew: {}",
                             error.what()));
  }
  if (now - touched_ >= kTouch) {
    touched_ = now;
    touch();
  }
}

// What cannot be told is taken for there.
bool Upkeep::is_there(const std::string& name) const noexcept {
  struct stat status {};
  return ::fstatat(directory_.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 ||
         errno != ENOENT;
}

// Whether the file of that name is one that we hold; who took another's place has it to itself.
bool Upkeep::has_lock() const noexcept {
  return lock_ < 0 || is_named(directory_, names_.lock, lock_) ||
         is_named(directory_, names_.lock, named_lock_.get());
}

// Who has the lock for an instant only finds that somebody serves here, and goes.
void Upkeep::look_for_another() {
  lost_turns_ = has_lock() ? 0 : lost_turns_ + 1;
  if (lost_turns_ != kTurnsUntilLost) return;
  const auto pid = lock_holder(directory_, names_.lock);
  log::error(fmt::format(
      "pid {} has taken this daemon's place after '{}/{}' was removed: engines that have weights "
      "of this one keep them, new ones find the other; end this one (kill {}) when they have ended",
      pid ? std::to_string(*pid) : "of another daemon", directory_.path(), names_.lock,
      ::getpid()));
}

void Upkeep::take_lock_again() {
  log::warn(fmt::format("the lock file '{}/{}' was removed while it is in use, and is made anew",
                        directory_.path(), names_.lock));
  named_lock_ = take_named_lock(directory_, names_.lock, "another daemon");
}

void Upkeep::touch() const noexcept {
  for (const std::string& name : {names_.socket, names_.lock, names_.state})
    if (!name.empty()) ::utimensat(directory_.fd(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  ::futimens(directory_.fd(), nullptr);
}

}  // namespace preload
