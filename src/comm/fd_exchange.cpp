// SPDX-License-Identifier: Apache-2.0
#include "comm/fd_exchange.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "base/error.hpp"
#include "base/fd_passing.hpp"
#include "serve/peer.hpp"

namespace preload {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kTokenBytes = 16;
constexpr std::size_t kFdsAtOnce = 200;  // under what the kernel takes
static_assert(kFdsAtOnce <= kMaxPassedFds);
constexpr std::chrono::milliseconds kTurn{100};

// The first message on a connection: who asks, and the proof that it is a rank of this job.
struct Greeting {
  std::array<char, kTokenBytes> token{};
  std::int32_t rank = 0;
};

sockaddr_un abstract_address(std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, name.data(), std::min(name.size(), sizeof address.sun_path));
  return address;
}

socklen_t length_of(std::string_view name) noexcept {
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
}

Fd make_socket() {
  return Fd(static_cast<int>(check_sys(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
                                       "cannot make a socket between the ranks of this node",
                                       Errc::kLauncher)));
}

// A listening socket under an abstract name that the kernel picked: it leaves nothing behind.
class Door {
 public:
  Door() : socket_(make_socket()) {
    const sockaddr_un any{AF_UNIX, {}};
    check_sys(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any.sun_family),
              "cannot name a socket between the ranks of this node", Errc::kLauncher);
    check_sys(listen(socket_.get(), SOMAXCONN), "cannot listen for ranks of this node",
              Errc::kLauncher);
    sockaddr_un bound{};
    socklen_t length = sizeof bound;
    check_sys(getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&bound), &length),
              "cannot read a socket's name", Errc::kLauncher);
    name_.assign(bound.sun_path, length - offsetof(sockaddr_un, sun_path));
    check_sys(getrandom(token_.data(), token_.size(), 0), "cannot make a secret", Errc::kLauncher);
  }

  // What others need to come in.
  std::string invitation() const { return std::string(token_.data(), token_.size()) + name_; }
  int fd() const noexcept { return socket_.get(); }

  // The next caller that is a rank of this job, or nothing.
  std::optional<std::pair<int, Fd>> accept_rank() const {
    Fd peer(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer) return std::nullopt;
    if (peer_of(peer.get()).uid != geteuid()) return std::nullopt;
    // A caller sends its greeting before it waits; who does not is no rank.
    const timeval patience{1, 0};
    setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    Greeting greeting;
    if (recv(peer.get(), &greeting, sizeof greeting, 0) != sizeof greeting ||
        greeting.token != token_) {
      return std::nullopt;
    }
    return std::pair(static_cast<int>(greeting.rank), std::move(peer));
  }

 private:
  Fd socket_;
  std::string name_;
  std::array<char, kTokenBytes> token_{};
};

Fd call(const std::string& invitation, int self, int rank) {
  if (invitation.size() <= kTokenBytes) {
    throw Error(Errc::kInternal, fmt::format("rank {} expects no other rank", rank));
  }
  const std::string_view name = std::string_view(invitation).substr(kTokenBytes);
  const sockaddr_un address = abstract_address(name);
  Fd socket = make_socket();
  check_sys(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length_of(name)),
            fmt::format("rank {} of this node cannot be reached (are its ranks in one network "
                        "namespace?)",
                        rank),
            Errc::kLauncher);
  Greeting greeting;
  std::memcpy(greeting.token.data(), invitation.data(), kTokenBytes);
  greeting.rank = self;
  check_sys(send(socket.get(), &greeting, sizeof greeting, MSG_NOSIGNAL),
            fmt::format("rank {} of this node does not listen", rank), Errc::kLauncher);
  return socket;
}

// Each message says how many descriptors there are in all.
void send_fds(int socket, const std::vector<Fd>& fds, int rank) {
  auto total = static_cast<std::uint32_t>(fds.size());
  std::vector<int> raw;
  for (const Fd& fd : fds) raw.push_back(fd.get());
  for (std::size_t first = 0; first < raw.size() || first == 0; first += kFdsAtOnce) {
    FdControl control;
    iovec body{&total, sizeof total};
    msghdr message{};
    message.msg_iov = &body;
    message.msg_iovlen = 1;
    const std::size_t count = std::min(kFdsAtOnce, raw.size() - first);
    control.attach(message, std::span(raw).subspan(first, count));
    check_sys(sendmsg(socket, &message, MSG_NOSIGNAL),
              fmt::format("rank {} of this node takes no descriptors", rank), Errc::kLauncher);
  }
}

// One message's descriptors, added to `fds`; the number that there will be in all.
std::uint32_t receive_fds(int socket, std::vector<Fd>& fds, int rank) {
  std::uint32_t total = 0;
  FdControl control;
  iovec body{&total, sizeof total};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  control.make_room(message, kFdsAtOnce);
  const long got =
      check_sys(recvmsg(socket, &message, MSG_CMSG_CLOEXEC),
                fmt::format("rank {} of this node sends nothing", rank), Errc::kLauncher);
  collect_fds(message, fds);
  if (got != sizeof total || (message.msg_flags & MSG_CTRUNC) != 0) {
    throw Error(Errc::kLauncher,
                fmt::format("rank {} of this node sent its memory's descriptors incompletely (is "
                            "the limit on open files, ulimit -n, too low?)",
                            rank));
  }
  return total;
}

class Deadline {
 public:
  explicit Deadline(const Wait& wait) : wait_(wait), end_(Clock::now() + wait.timeout) {}
  // True once `fd` can be read; false after a short while, to look at the rest of the world.
  bool wait_readable(int fd, int rank) const {
    wait_.cancel.check();
    if (Clock::now() > end_) {
      throw Error(Errc::kLauncher, fmt::format("no answer from rank {} of this node after {} s, "
                                               "waiting for {}",
                                               rank, wait_.timeout.count(), wait_.what));
    }
    pollfd entry{fd, POLLIN, 0};
    return poll(&entry, 1, static_cast<int>(kTurn.count())) > 0;
  }

 private:
  const Wait& wait_;
  Clock::time_point end_;
};

}  // namespace

std::map<int, std::vector<Fd>> exchange_fds(Group& group, const FdExchange& exchange,
                                            const Wait& wait) {
  std::optional<Door> door;
  if (!exchange.receivers.empty()) door.emplace();
  const std::vector<std::string> invitations =
      group.all_gather(door ? door->invitation() : std::string(), wait);
  const Deadline deadline(wait);

  // Nobody waits for an answer before everybody has asked.
  std::map<int, Fd> asked;
  for (const int giver : exchange.givers) {
    asked[giver] = call(invitations.at(static_cast<std::size_t>(giver)), group.rank(), giver);
  }
  std::vector<int> missing = exchange.receivers;
  while (!missing.empty()) {
    if (!deadline.wait_readable(door->fd(), missing.front())) continue;
    const auto caller = door->accept_rank();
    if (!caller || std::erase(missing, caller->first) == 0) continue;
    send_fds(caller->second.get(), exchange.mine, caller->first);
  }
  std::map<int, std::vector<Fd>> received;
  for (const auto& [giver, socket] : asked) {
    std::vector<Fd>& fds = received[giver];
    for (std::uint32_t total = 1; fds.size() < total;) {
      if (!deadline.wait_readable(socket.get(), giver)) continue;
      total = receive_fds(socket.get(), fds, giver);
    }
  }
  return received;
}

}  // namespace preload
