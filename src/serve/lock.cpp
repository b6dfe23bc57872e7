// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "serve/connect.hpp"
#include "serve/named_file.hpp"
#include "serve/peer.hpp"
#include "serve/socket_dir.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;

// A client that probes holds the lock shared for an instant: a daemon tries again that long.
constexpr auto kLockPatience = std::chrono::milliseconds(400);
constexpr auto kLockRetry = std::chrono::milliseconds(5);

bool try_lock(int fd, int kind) {
  while (::flock(fd, kind | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) check_sys(-1, "flock", Errc::kUsage);
  }
  return true;
}

void check_lock_file(int fd, const std::string& path, const std::vector<unsigned>& allow_uids) {
  struct stat status {};
  check_sys(::fstat(fd, &status), "cannot stat the lock file", Errc::kUsage);
  if (S_ISREG(status.st_mode) && is_trusted(status.st_uid, allow_uids)) return;
  throw Error(Errc::kUsage, fmt::format("'{}' is {} of {}, not a lock file of ours: remove it",
                                        path, kind_text(status.st_mode), user_text(status.st_uid)));
}

// Of an open that has just failed, or not.
void check_opened(int raw, const std::string& path) {
  if (raw < 0 && (errno == ELOOP || errno == EISDIR))
    throw Error(Errc::kUsage, fmt::format("'{}' is a {}, not a lock file of ours: remove it", path,
                                          errno == ELOOP ? "symbolic link" : "directory"));
  check_sys(raw, fmt::format("cannot open the lock file '{}'", path), Errc::kUsage);
}

Fd open_lock(const SocketDir& directory, const std::string& name) {
  const std::string path = directory.path() + "/" + name;
  const int raw = ::openat(directory.fd(), name.c_str(),
                           O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  if (raw < 0 && (errno == ENOSPC || errno == EDQUOT))
    throw Error(Errc::kUsage,
                fmt::format("there is no room for the lock file '{}' ({}): make some in the socket "
                            "directory's file system, or choose another with "
                            "--weight-cache-socket-dir",
                            path, errno_text(errno)));
  check_opened(raw, path);
  Fd fd(raw);
  check_lock_file(fd.get(), path, {});
  return fd;
}

std::string holder_text(const SocketDir& directory, const std::string& name) {
  const auto pid = lock_holder(directory, name);
  return pid ? fmt::format("pid {}", *pid) : "another process";
}

}  // namespace

std::optional<int> lock_holder(const SocketDir& directory, const std::string& lock_name) {
  const auto text = read_file_at(directory.fd(), lock_name, 64);
  int pid = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), pid).ec != std::errc{})
    return std::nullopt;
  return pid;
}

Fd take_named_lock(const SocketDir& directory, const std::string& name, const std::string& whose) {
  const auto deadline = Clock::now() + kLockPatience;
  Fd fd = open_lock(directory, name);
  // A file that was removed between the two steps locks nobody else out.
  while (!try_lock(fd.get(), LOCK_EX) || !is_named(directory, name, fd.get())) {
    if (Clock::now() >= deadline)
      throw Error(Errc::kBusy, fmt::format("{} runs already: {} holds the lock '{}/{}'", whose,
                                           holder_text(directory, name), directory.path(), name));
    std::this_thread::sleep_for(kLockRetry);
    if (!is_named(directory, name, fd.get())) fd = open_lock(directory, name);
  }
  note_holder(fd);
  // Whom an earlier daemon let in is not let in for good.
  check_sys(::fchmod(fd.get(), 0600), fmt::format("cannot set the mode of '{}'", name),
            Errc::kUsage);
  directory.share(name, Access::kRead);
  return fd;
}

// For messages, in another process; the lock itself needs no content, so that a full file system is
// worth a warning. What is there already is overwritten where it lies.
void note_holder(const Fd& lock) {
  const std::string pid = fmt::format("{}\n", ::getpid());
  const auto size = static_cast<off_t>(pid.size());
  if (::pwrite(lock.get(), pid.data(), pid.size(), 0) == size && ::ftruncate(lock.get(), size) == 0)
    return;
  const int error = errno;
  // Better nobody's pid than another's.
  if (::ftruncate(lock.get(), 0) != 0) log::debug("a lock file keeps what was written into it");
  log::warn(
      fmt::format("the lock file does not say that pid {} has the lock ({}): make room in the "
                  "socket directory's file system, or clients may not be told what happens",
                  ::getpid(), errno_text(error)));
}

Fd take_lock(const SocketDir& directory, const Endpoint& endpoint) {
  const std::string name = endpoint.lock_name();
  const std::string place =
      endpoint.device + (endpoint.slot.empty() ? "" : " slot " + endpoint.slot);
  Fd lock;
  try {
    lock = take_named_lock(directory, name, endpoint.device);
  } catch (const Error& error) {
    if (error.code() != Errc::kBusy) throw;
    throw Error(
        Errc::kBusy,
        fmt::format("{} is already served by {} (lock '{}/{}'): stop that daemon, take its place "
                    "with --replace, or serve a second model with --slot",
                    place, holder_text(directory, name), directory.path(), name));
  }
  if (const auto pid = listener_pid(directory, endpoint.socket_name()))
    throw Error(Errc::kBusy,
                fmt::format("{} is already served by pid {}, whose lock file '{}/{}' was removed "
                            "while it ran: stop it with `preload stop`",
                            place, *pid, directory.path(), name));
  return lock;
}

bool lock_is_held(const SocketDir& directory, const std::string& lock_name) {
  const int raw =
      ::openat(directory.fd(), lock_name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (raw < 0 && errno == ENOENT) return false;
  const std::string path = directory.path() + "/" + lock_name;
  check_opened(raw, path);
  const Fd fd(raw);
  check_lock_file(fd.get(), path, directory.allow_uids());
  // Shared, so that probes never disturb each other; given back by the close.
  return !try_lock(fd.get(), LOCK_SH);
}

}  // namespace preload
