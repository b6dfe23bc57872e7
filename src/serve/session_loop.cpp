// SPDX-License-Identifier: Apache-2.0
#include "serve/session_loop.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/log.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

constexpr int kAcceptBatch = 64;                               // then sessions get their turn
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // when descriptors have run out
constexpr std::string_view kUntrusted = "untrusted";           // as a cause of refusals

wire::ErrorReply reply_of(const Error& error) {
  if (const auto* peer = dynamic_cast<const wire::PeerError*>(&error)) return peer->reply();
  wire::ErrorReply reply;
  reply.code = error.code();
  reply.message = error.what();
  return reply;
}

// What would end, move or free what others use; those whom --allow-uid names may only attach.
bool is_for_owners(const wire::Frame& frame) {
  switch (frame.type) {
    case wire::Type::kStop:
    case wire::Type::kHandover:
    case wire::Type::kDeposit:
    case wire::Type::kAdopt:
      return true;
    case wire::Type::kRelease:
      return !wire::release_request_from_json(frame.body).after_leases;
    default:
      return false;
  }
}

}  // namespace

void refuse(Session& session, const Error& error) {
  session.answer(wire::Type::kError, wire::to_json(reply_of(error)));
}

SessionLoop::SessionLoop(SessionHandler& handler, SessionOptions options, bool takes_packages)
    : handler_(handler),
      options_(std::move(options)),
      takes_packages_(takes_packages),
      epoll_(static_cast<int>(check_sys(::epoll_create1(EPOLL_CLOEXEC), "epoll_create"))),
      wake_(static_cast<int>(
          check_sys(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "cannot make an eventfd"))) {
  control(EPOLL_CTL_ADD, wake_.get(), EPOLLIN);
}

void SessionLoop::control(int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  check_sys(::epoll_ctl(epoll_.get(), operation, fd, &event), "epoll_ctl");
}

void SessionLoop::listen(Fd listener) {
  control(EPOLL_CTL_ADD, listener.get(), EPOLLIN);
  listener_ = std::move(listener);
}

// Another process may hold the same socket: our close alone would not end the watch.
Fd SessionLoop::stop_listening() {
  control(EPOLL_CTL_DEL, listener_.get(), 0);
  accept_again_.reset();
  return std::move(listener_);
}

void SessionLoop::watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> callback) {
  control(EPOLL_CTL_ADD, fd, events);
  watched_[fd] = std::move(callback);
}

void SessionLoop::watch_for(int fd, std::uint32_t events) { control(EPOLL_CTL_MOD, fd, events); }

void SessionLoop::unwatch(int fd) noexcept {
  epoll_event none{};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &none);
  watched_.erase(fd);
}

void SessionLoop::wake() noexcept {
  const std::uint64_t one = 1;
  // A full counter wakes the loop as well.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

// The watch is ended by hand: after a handover another process holds the same socket.
void SessionLoop::drop(int fd) {
  const auto it = sessions_.find(fd);
  if (it == sessions_.end()) return;
  handler_.closed(fd);
  epoll_event none{};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &none);
  sessions_.erase(fd);
}

// Nobody takes the answers: they go with the session.
void SessionLoop::finish(int fd) {
  const auto it = sessions_.find(fd);
  if (it == sessions_.end()) return;
  Session& session = it->second;
  try {
    while (session.read() == Session::Input::kFrame) dispatch(session);
  } catch (const std::exception& error) {
    log::debug(
        fmt::format("what pid {} sent last was not taken: {}", session.peer().pid, error.what()));
  }
  drop(fd);
}

void SessionLoop::drop_where(const std::function<bool(const Session&)>& condition) {
  std::vector<int> chosen;
  for (const auto& [fd, session] : sessions_)
    if (condition(session)) chosen.push_back(fd);
  for (const int fd : chosen) drop(fd);
}

void SessionLoop::dispatch(Session& session) {
  wire::Frame frame = session.take();
  if (!is_trusted(session.peer().uid, {}) && is_for_owners(frame))
    throw Error(Errc::kProtocol,
                fmt::format("{} may attach here, but not stop, succeed or force what {} runs: that "
                            "is for this user and root",
                            user_text(session.peer().uid), user_text(::geteuid())));
  handler_.handle(session, std::move(frame));
}

void SessionLoop::drop_one_for_room() {
  const auto order = [](const Session& session) {
    return std::pair(session.is_pinned(), session.drop_order());
  };
  const auto victim = std::min_element(
      sessions_.begin(), sessions_.end(),
      [&](const auto& a, const auto& b) { return order(a.second) < order(b.second); });
  if (victim == sessions_.end() || victim->second.is_pinned()) return;
  log::debug(fmt::format("dropped the connection of pid {} to make room for another",
                         victim->second.peer().pid));
  drop(victim->first);
}

// False when there is nothing more to accept now.
bool SessionLoop::accept_one() {
  Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EINTR || errno == ECONNABORTED) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (!complained_) log::warn("cannot accept connections for now: " + errno_text(errno));
    complained_ = true;
    accept_again_ = Clock::now() + kAcceptPause;  // else the loop would spin on it
    control(EPOLL_CTL_MOD, listener_.get(), 0);
    return false;
  }
  complained_ = false;
  try {
    welcome(std::move(socket));
  } catch (const Error& error) {
    log::warn(fmt::format("turned a connection away: {}", error.what()));
  }
  return true;
}

void SessionLoop::welcome(Fd socket) {
  const Peer peer = peer_of(socket.get());
  if (!is_trusted(peer.uid, options_.allow_uids)) {
    log::warn(
        fmt::format("closed a connection of {}, who is not trusted: --allow-uid {} would "
                    "let them in",
                    user_text(peer.uid), peer.uid));
    handler_.refused(kUntrusted);
    return;
  }
  if (sessions_.size() >= options_.max_connections) drop_one_for_room();
  const int fd = socket.get();
  control(EPOLL_CTL_ADD, fd, EPOLLIN);  // ended by the close if the next line fails
  sessions_.emplace(fd, Session(std::move(socket), peer, takes_packages_));
}

void SessionLoop::take_over(Fd socket) try {
  welcome(std::move(socket));
} catch (const Error& error) {
  log::warn(fmt::format("lost a connection that was handed over: {}", error.what()));
}

std::vector<Fd> SessionLoop::take_idle_sockets() {
  std::vector<Fd> sockets;
  std::vector<int> numbers;
  for (auto& [fd, session] : sessions_)
    if (session.is_idle() && !session.is_pinned()) numbers.push_back(fd);
  for (const int fd : numbers) {
    epoll_event none{};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, &none);
    sockets.push_back(sessions_.at(fd).take_socket());
    sessions_.erase(fd);
  }
  return sockets;
}

std::size_t SessionLoop::busy_sessions(int except) const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(sessions_, [&](const auto& entry) {
    return entry.first != except && !entry.second.is_idle();
  }));
}

void SessionLoop::answer(int fd, wire::Type type, std::string_view body, std::vector<Fd> fds) {
  const auto it = sessions_.find(fd);
  if (it == sessions_.end()) return;
  it->second.answer_owned(type, body, std::move(fds));
  try {
    after(it->second);
  } catch (const Error& error) {
    log::debug(fmt::format("lost a connection: {}", error.what()));
    drop(fd);
  }
}

void SessionLoop::accept_some() {
  for (int i = 0; i < kAcceptBatch && listener_; ++i)
    if (!accept_one()) return;
}

void SessionLoop::on_session(int fd) {
  const auto it = sessions_.find(fd);
  if (it == sessions_.end()) return;  // dropped earlier in this round
  try {
    converse(it->second);
  } catch (const std::exception& error) {
    log::debug(
        fmt::format("lost the connection of pid {}: {}", it->second.peer().pid, error.what()));
    if (it->second.is_pinned()) {
      finish(fd);
    } else {
      drop(fd);
    }
  }
}

// One request at a time: while an answer waits to be taken nothing more is read.
void SessionLoop::converse(Session& session) {
  if (!session.has_output()) {
    try {
      switch (session.read()) {
        case Session::Input::kNothing:
          return;
        case Session::Input::kClosed:
          drop(session.fd());
          return;
        case Session::Input::kFrame:
          dispatch(session);
          break;
      }
    } catch (const Error& error) {
      if (error.code() == Errc::kUnavailable) throw;  // the connection itself broke
      log::debug(fmt::format("pid {} broke the protocol: {}", session.peer().pid, error.what()));
      handler_.refused(wire_code(error.code()));
      refuse(session, error);
      session.close_when_sent();
    }
  }
  after(session);
}

void SessionLoop::after(Session& session) {
  if (!session.flush()) {
    drop(session.fd());
    return;
  }
  control(EPOLL_CTL_MOD, session.fd(), session.has_output() ? EPOLLOUT : EPOLLIN);
}

void SessionLoop::drop_overdue() {
  const auto now = Clock::now();
  std::vector<int> overdue;
  for (const auto& [fd, session] : sessions_) {
    const auto deadline = session.deadline(options_.half_request_timeout_ms);
    if (deadline && *deadline <= now) overdue.push_back(fd);
  }
  for (const int fd : overdue) {
    log::debug(fmt::format("closed the connection of pid {}: it left a message half done",
                           sessions_.at(fd).peer().pid));
    drop(fd);
  }
  if (accept_again_ && *accept_again_ <= now) {
    accept_again_.reset();
    control(EPOLL_CTL_MOD, listener_.get(), EPOLLIN);
  }
}

int SessionLoop::wait_ms(std::optional<Clock::time_point> until) const {
  std::optional<Clock::time_point> next = until;
  const auto consider = [&](const std::optional<Clock::time_point>& time) {
    if (time && (!next || *time < *next)) next = time;
  };
  consider(accept_again_);
  for (const auto& [fd, session] : sessions_)
    consider(session.deadline(options_.half_request_timeout_ms));
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, 3'600'000));
}

void SessionLoop::turn(std::optional<Clock::time_point> until) {
  std::array<epoll_event, 128> events;
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms(until));
  if (count < 0 && errno != EINTR) check_sys(-1, "epoll_wait");
  bool accept_due = false;
  for (int i = 0; i < count; ++i) {
    const int fd = events[static_cast<std::size_t>(i)].data.fd;
    if (fd == wake_.get()) {
      std::uint64_t wakes = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &wakes, sizeof wakes);
    } else if (fd == listener_.get()) {
      accept_due = true;
    } else if (const auto it = watched_.find(fd); it != watched_.end()) {
      const auto callback = it->second;  // it may unwatch itself
      callback(events[static_cast<std::size_t>(i)].events);
    } else {
      on_session(fd);
    }
  }
  // Last, so that a descriptor's number is not given away while its events are being handled.
  if (accept_due) accept_some();
  drop_overdue();
}

}  // namespace preload
