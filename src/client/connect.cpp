// SPDX-License-Identifier: Apache-2.0
#include "client/connect.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <variant>

#include "base/bytes.hpp"
#include "wire/exchange.hpp"

namespace preload::client {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr auto kTombstoneGrace = std::chrono::seconds(3);

// A connected socket, or nothing when nobody listens there.
std::optional<Fd> open_socket(const SocketDir& directory, const std::string& name,
                              Clock::time_point deadline) {
  const std::string path = directory.proc_path(name);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    throw Error(Errc::kInternal, "a socket's path through /proc is too long: " + path);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  Fd fd(static_cast<int>(
      check_sys(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket")));
  // EAGAIN is a full backlog: a plain connect would block without a limit.
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ECONNREFUSED) return std::nullopt;
    if (error != EAGAIN && error != EINTR) {
      throw Error(Errc::kUnavailable, fmt::format("connecting to {} in {}: {}", name,
                                                  directory.path(), errno_text(error)));
    }
    if (Clock::now() >= deadline) {
      throw Error(Errc::kUnavailable, fmt::format("the daemon at {} in {} accepts no connection: "
                                                  "its backlog is full",
                                                  name, directory.path()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const int flags = static_cast<int>(check_sys(::fcntl(fd.get(), F_GETFL), "fcntl"));
  check_sys(::fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK), "fcntl");
  return fd;
}

// Whoever listens must be us, root or the owner of the directory, which SocketDir has checked.
void check_peer(const SocketDir& directory, int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  check_sys(::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size), "asking who listens",
            Errc::kProtocol);
  struct stat info {};
  check_sys(::fstat(directory.fd(), &info), "looking at the socket directory", Errc::kProtocol);
  if (peer.uid == ::geteuid() || peer.uid == 0 || peer.uid == info.st_uid) return;
  throw Error(Errc::kProtocol,
              fmt::format("the socket in {} is served by uid {} (pid {}), not by us, root or the "
                          "directory's owner: remove it",
                          directory.path(), peer.uid, peer.pid));
}

// What one look at the directory found, other than a daemon that serves.
struct Loading {
  std::string text;
};
struct Tombstone {
  std::int64_t time_ms = 0;
  std::string text;
};
struct Absent {
  std::string text;
};
using Look = std::variant<Connection, Loading, Tombstone, Absent>;

std::string loading_text(const SocketDir& directory, const Endpoint& endpoint,
                         const std::optional<StateFile>& state) {
  std::string text =
      fmt::format("the daemon for {} in {} is still loading", describe(endpoint), directory.path());
  if (!state) return text;
  if (state->pid > 0) text += fmt::format(", pid {}", state->pid);
  if (!state->model.empty()) text += ", " + state->model;
  if (state->total_bytes > 0) {
    text += fmt::format(", {} of {}", format_bytes(state->bytes), format_bytes(state->total_bytes));
  }
  return text;
}

Look look_without_socket(const SocketDir& directory, const Endpoint& endpoint) {
  const bool held = lock_is_held(directory, endpoint.lock_name());
  const std::optional<StateFile> state = read_state(directory, endpoint.state_name());
  if (state && state->state == "FAILED") {
    return Tombstone{state->time_ms,
                     fmt::format("the daemon for {} in {} failed ({}): {}", describe(endpoint),
                                 directory.path(), state->code, state->text)};
  }
  if (held) return Loading{loading_text(directory, endpoint, state)};
  if (state) {
    return Absent{fmt::format(
        "the daemon for {} in {} (pid {}, last {}) is gone: its lock {} is "
        "free; start it again",
        describe(endpoint), directory.path(), state->pid, state->state, endpoint.lock_name())};
  }
  return Absent{fmt::format(
      "no daemon for {} in {}: {} and {} are not there or not in use; start "
      "one, or name its --weight-cache-socket-dir",
      describe(endpoint), directory.path(), endpoint.socket_name(), endpoint.lock_name())};
}

Look look_at(const SocketDir& directory, const Endpoint& endpoint, const ConnectOptions& options) {
  const auto timeout = std::chrono::milliseconds(options.connect_timeout_ms);
  std::optional<Fd> socket = open_socket(directory, endpoint.socket_name(), Clock::now() + timeout);
  if (!socket) return look_without_socket(directory, endpoint);
  check_peer(directory, socket->get());
  wire::HelloReply hello =
      wire::call_hello(socket->get(), {options.identity}, options.connect_timeout_ms);
  if (hello.state == wire::DaemonState::kLoading) {
    return Loading{loading_text(directory, endpoint, read_state(directory, endpoint.state_name()))};
  }
  return Connection{std::move(*socket), endpoint, std::move(hello)};
}

Look look(const ConnectOptions& options, const std::optional<std::string>& device) {
  const Wanted& wanted = options.wanted;
  try {
    const SocketDir directory = SocketDir::open(wanted.socket_dir, false);
    const Endpoint endpoint = device ? Endpoint{*device, wanted.slot, wanted.role}
                                     : only_endpoint(directory, wanted.slot, wanted.role);
    return look_at(directory, endpoint, options);
  } catch (const Error& error) {
    // A directory or daemon that is not there yet, or one that went while we spoke with it.
    if (error.code() != Errc::kUnavailable) throw;
    return Absent{error.what()};
  }
}

// The wait as a whole: what each look means for it.
class Wait {
 public:
  explicit Wait(int timeout_ms)
      : timeout_ms_(timeout_ms), deadline_(Clock::now() + std::chrono::milliseconds(timeout_ms)) {}

  void consider(const Loading& loading) { give_up_when_over(loading.text); }
  void consider(const Absent& absent) { give_up_when_over(absent.text); }
  void consider(const Tombstone& tombstone) {
    if (tombstone_time_ms_ != tombstone.time_ms) {
      tombstone_time_ms_ = tombstone.time_ms;
      tombstone_until_ = std::min(deadline_, Clock::now() + kTombstoneGrace);
    }
    if (Clock::now() >= tombstone_until_) throw DaemonFailed(tombstone.text);
  }
  void consider(const Connection&) {}

 private:
  void give_up_when_over(const std::string& text) const {
    if (Clock::now() < deadline_) return;
    if (timeout_ms_ == 0) throw Error(Errc::kUnavailable, text);
    throw Error(Errc::kTimeout, fmt::format("waited {} s: {}", timeout_ms_ / 1000.0, text));
  }

  int timeout_ms_;
  Clock::time_point deadline_;
  std::optional<std::int64_t> tombstone_time_ms_;
  Clock::time_point tombstone_until_;
};

}  // namespace

Connection connect_daemon(const ConnectOptions& options) {
  std::optional<std::string> device;
  if (options.wanted.device) device = device_from_text(*options.wanted.device);
  Wait wait(options.wait_timeout_ms);
  for (;;) {
    Look found = look(options, device);
    if (auto* connection = std::get_if<Connection>(&found)) return std::move(*connection);
    std::visit([&wait](const auto& seen) { wait.consider(seen); }, found);
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace preload::client
