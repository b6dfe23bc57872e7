// SPDX-License-Identifier: Apache-2.0
#include "serve/connect.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "serve/peer.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 1024;  // the kernel lowers it to net.core.somaxconn
constexpr auto kConnectRetry = std::chrono::milliseconds(5);
constexpr auto kDying = std::chrono::milliseconds(1000);
constexpr auto kDyingRetry = std::chrono::milliseconds(10);

Fd make_socket() {
  return Fd(static_cast<int>(check_sys(
      ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "cannot make a socket")));
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw Error(Errc::kInternal, fmt::format("socket path '{}' is too long", path));
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// At this instant; see listener_pid().
std::optional<int> listener_now(const SocketDir& directory, const std::string& socket_name) {
  const Fd socket = make_socket();
  const sockaddr_un address = address_of(directory.proc_path(socket_name));
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
         0) {
    if (errno == EAGAIN) return 0;  // whose backlog is full
    if (errno != EINTR) return std::nullopt;
  }
  return peer_of(socket.get()).pid;
}

void remove_stale(const SocketDir& directory, const std::string& name, const std::string& path,
                  Listeners present) {
  struct stat status {};
  if (::fstatat(directory.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return;
    check_sys(-1, fmt::format("cannot stat '{}'", path), Errc::kUsage);
  }
  if (!S_ISSOCK(status.st_mode) || status.st_uid != ::geteuid())
    throw Error(Errc::kUsage,
                fmt::format("'{}' is {} of {}, where the socket of {} should be: find out who put "
                            "it there and remove it",
                            path, kind_text(status.st_mode), user_text(status.st_uid),
                            user_text(::geteuid())));
  if (present == Listeners::kRefuse) {
    if (const auto pid = listener_pid(directory, name))
      throw Error(
          Errc::kBusy,
          fmt::format("pid {} listens at '{}' already, although its lock was free: the lock "
                      "file was removed under it; stop it first",
                      *pid, path));
  }
  check_sys(::unlinkat(directory.fd(), name.c_str(), 0),
            fmt::format("cannot remove the stale socket '{}'", path), Errc::kUsage);
}

// The very inode that was looked at, opened without following a link: connecting to it leaves no
// moment for an exchange.
Fd open_checked(const SocketDir& directory, const std::string& name, const std::string& path) {
  const int raw = ::openat(directory.fd(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (raw < 0 && errno == ENOENT)
    throw Error(Errc::kUnavailable, fmt::format("no daemon listens at '{}'", path));
  check_sys(raw, fmt::format("cannot look at '{}'", path), Errc::kUnavailable);
  Fd fd(raw);
  struct stat status {};
  check_sys(::fstat(fd.get(), &status), fmt::format("cannot stat '{}'", path));
  if (!S_ISSOCK(status.st_mode) || !directory.trusts(status.st_uid))
    throw Error(Errc::kProtocol,
                fmt::format("'{}' is {} of {}, not a daemon's socket of {}: it is not trusted; "
                            "remove it",
                            path, kind_text(status.st_mode), user_text(status.st_uid),
                            user_text(::geteuid())));
  return fd;
}

}  // namespace

std::optional<int> listener_pid(const SocketDir& directory, const std::string& socket_name) {
  const auto deadline = Clock::now() + kDying;
  while (const std::optional<int> pid = listener_now(directory, socket_name)) {
    if (Clock::now() >= deadline) return pid;
    std::this_thread::sleep_for(kDyingRetry);
  }
  return std::nullopt;
}

Fd listen_at(const SocketDir& directory, const std::string& socket_name, Listeners present) {
  const std::string path = directory.path() + "/" + socket_name;
  remove_stale(directory, socket_name, path, present);
  Fd socket = make_socket();
  // On Linux the inode that bind makes takes its mode from the socket: there is no moment in which
  // others could connect, and the process's umask stays as it is.
  check_sys(::fchmod(socket.get(), 0600), "cannot set the socket's mode");
  const sockaddr_un address = address_of(directory.proc_path(socket_name));
  check_sys(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            fmt::format("cannot bind '{}'", path), Errc::kUsage);
  directory.share(socket_name, Access::kConnect);
  check_sys(::listen(socket.get(), kBacklog), fmt::format("cannot listen at '{}'", path));
  return socket;
}

Fd connect_to(const SocketDir& directory, const std::string& socket_name, int timeout_ms) {
  const std::string path = directory.path() + "/" + socket_name;
  const Fd node = open_checked(directory, socket_name, path);
  Fd socket = make_socket();
  const sockaddr_un address = address_of(fmt::format("/proc/self/fd/{}", node.get()));
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
         0) {
    const int error = errno;
    if (error == ECONNREFUSED)
      throw Error(Errc::kUnavailable,
                  fmt::format("nobody listens at '{}': its daemon is gone", path));
    if (error != EAGAIN && error != EINTR)
      throw Error(Errc::kUnavailable,
                  fmt::format("cannot connect to '{}': {}", path, errno_text(error)));
    if (Clock::now() >= deadline)
      throw Error(Errc::kUnavailable,
                  fmt::format("the daemon at '{}' accepts no connection", path));
    std::this_thread::sleep_for(kConnectRetry);  // its backlog is full
  }
  const Peer peer = peer_of(socket.get());
  if (!directory.trusts(peer.uid))
    throw Error(
        Errc::kProtocol,
        fmt::format("the daemon at '{}' is run by {}, who is not trusted: --allow-uid {} or "
                    "$PRELOAD_ALLOW_UIDS, at both ends, if that is meant",
                    path, user_text(peer.uid), peer.uid));
  return socket;
}

}  // namespace preload
