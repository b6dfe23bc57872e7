// SPDX-License-Identifier: Apache-2.0
#include "serve/server.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/log.hpp"
#include "serve/connect.hpp"
#include "serve/holding.hpp"
#include "serve/session.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

using Clock = Session::Clock;

constexpr int kAcceptBatch = 64;                               // then sessions get their turn
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // when descriptors have run out
constexpr std::string_view kUntrusted = "untrusted";           // as a cause of refusals
constexpr std::size_t kReservedFds = 64;                       // files, logs, the loop's own

// Leases hold a descriptor each: as many as the limit leaves beside connections and slabs.
std::size_t lease_capacity(std::size_t max_connections, std::size_t slabs) {
  rlimit limit{};
  check_sys(::getrlimit(RLIMIT_NOFILE, &limit), "getrlimit");
  const std::size_t taken = max_connections + slabs + kReservedFds;
  return limit.rlim_cur > taken ? static_cast<std::size_t>(limit.rlim_cur) - taken : 1;
}

wire::ErrorReply reply_of(const Error& error) {
  if (const auto* peer = dynamic_cast<const wire::PeerError*>(&error)) return peer->reply();
  wire::ErrorReply reply;
  reply.code = error.code();
  reply.message = error.what();
  return reply;
}

}  // namespace

struct Server::State {
  State(const SocketDir& dir, Residency residency, ServerOptions server_options)
      : directory(dir),
        options(std::move(server_options)),
        max_leases(lease_capacity(options.max_connections, residency.slabs.size())),
        holding(std::move(residency), max_leases),
        epoll(static_cast<int>(check_sys(::epoll_create1(EPOLL_CLOEXEC), "epoll_create"))),
        wake(static_cast<int>(
            check_sys(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "cannot make an eventfd"))),
        listener(listen_at(directory, holding.endpoint().socket_name())) {
    watch(EPOLL_CTL_ADD, wake.get(), EPOLLIN);
    watch(EPOLL_CTL_ADD, holding.lease_epoll_fd(), EPOLLIN);
    watch(EPOLL_CTL_ADD, listener.get(), EPOLLIN);
    holding.on_freed([this] { after_release(); });
  }

  void watch(int operation, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    check_sys(::epoll_ctl(epoll.get(), operation, fd, &event), "epoll_ctl");
  }

  void signal() noexcept {
    const std::uint64_t one = 1;
    // A full counter wakes the loop as well.
    [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
  }

  void request_end(ServeEnd end) {
    {
      const std::lock_guard lock(mutex);
      if (!pending_end) pending_end = std::move(end);
    }
    signal();
  }

  std::optional<ServeEnd> take_wishes();
  void drop(int fd);
  void drop_one_for_room();
  void accept_some();
  bool accept_one();
  void welcome(Fd socket);
  void on_session(int fd);
  void converse(Session& session);
  void handle(Session& session, wire::Frame frame);
  void handle_stop(Session& session, const wire::StopRequest& request);
  void refuse(Session& session, const Error& error, bool close);
  void after(Session& session);
  void after_release();
  void drop_overdue();
  int wait_ms() const;
  ServeEnd loop();

  const SocketDir& directory;
  ServerOptions options;
  std::size_t max_leases;
  Holding holding;
  Fd epoll, wake, listener;
  std::unordered_map<int, Session> sessions;
  std::optional<Clock::time_point> accept_again;  // set while accepting pauses
  bool complained = false;                        // about the present lack of descriptors
  std::function<void()> on_job_stop, on_released;

  std::mutex mutex;  // guards what other threads leave for the loop
  bool admit_wish = false;
  std::optional<ServeEnd> pending_end;
};

std::optional<ServeEnd> Server::State::take_wishes() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake.get(), &count, sizeof count);
  const std::lock_guard lock(mutex);
  if (admit_wish) holding.admit();
  return pending_end;
}

// The close ends the watch: nobody else holds an accepted socket.
void Server::State::drop(int fd) { sessions.erase(fd); }

void Server::State::drop_one_for_room() {
  const auto victim = std::min_element(
      sessions.begin(), sessions.end(),
      [](const auto& a, const auto& b) { return a.second.drop_order() < b.second.drop_order(); });
  if (victim == sessions.end()) return;
  log::debug(fmt::format("dropped the connection of pid {} to make room for another",
                         victim->second.peer().pid));
  drop(victim->first);
}

// False when there is nothing more to accept now.
bool Server::State::accept_one() {
  Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno == EINTR || errno == ECONNABORTED) return true;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (!complained) log::warn("cannot accept connections for now: " + errno_text(errno));
    complained = true;
    accept_again = Clock::now() + kAcceptPause;  // else the loop would spin on it
    watch(EPOLL_CTL_MOD, listener.get(), 0);
    return false;
  }
  complained = false;
  try {
    welcome(std::move(socket));
  } catch (const Error& error) {
    log::warn(fmt::format("turned a connection away: {}", error.what()));
  }
  return true;
}

void Server::State::welcome(Fd socket) {
  const Peer peer = peer_of(socket.get());
  if (!is_trusted(peer.uid, options.allow_uids)) {
    log::warn(
        fmt::format("closed a connection of {}, who is not trusted: --allow-uid {} would "
                    "let them in",
                    user_text(peer.uid), peer.uid));
    holding.counters().refused(kUntrusted);
    return;
  }
  if (sessions.size() >= options.max_connections) drop_one_for_room();
  const int fd = socket.get();
  watch(EPOLL_CTL_ADD, fd, EPOLLIN);  // ended by the close if the next line fails
  sessions.emplace(fd, Session(std::move(socket), peer));
}

void Server::State::accept_some() {
  for (int i = 0; i < kAcceptBatch; ++i)
    if (!accept_one()) return;
}

void Server::State::on_session(int fd) {
  const auto it = sessions.find(fd);
  if (it == sessions.end()) return;  // dropped earlier in this round
  try {
    converse(it->second);
  } catch (const std::exception& error) {
    log::debug(
        fmt::format("lost the connection of pid {}: {}", it->second.peer().pid, error.what()));
    drop(fd);
  }
}

// One request at a time: while an answer waits to be taken nothing more is read.
void Server::State::converse(Session& session) {
  if (!session.has_output()) {
    try {
      switch (session.read()) {
        case Session::Input::kNothing:
          return;
        case Session::Input::kClosed:
          drop(session.fd());
          return;
        case Session::Input::kFrame:
          handle(session, session.take());
          break;
      }
    } catch (const Error& error) {
      if (error.code() == Errc::kUnavailable) throw;  // the connection itself broke
      refuse(session, error, true);
    }
  }
  after(session);
}

void Server::State::after(Session& session) {
  if (!session.flush()) {
    drop(session.fd());
    return;
  }
  watch(EPOLL_CTL_MOD, session.fd(), session.has_output() ? EPOLLOUT : EPOLLIN);
}

void Server::State::refuse(Session& session, const Error& error, bool close) {
  if (close)
    log::debug(fmt::format("pid {} broke the protocol: {}", session.peer().pid, error.what()));
  const wire::ErrorReply reply = reply_of(error);
  holding.counters().refused(wire_code(reply.code));
  session.answer(wire::Type::kError, wire::to_json(reply));
  if (close) session.close_when_sent();
}

void Server::State::handle(Session& session, wire::Frame frame) {
  const bool is_attach = frame.type == wire::Type::kAttach;
  if (!is_attach && !frame.fds.empty())
    throw Error(Errc::kProtocol, "only attach comes with a descriptor");
  switch (frame.type) {
    case wire::Type::kHello:
      wire::hello_request_from_json(frame.body);
      session.answer(frame.type, wire::to_json(holding.hello()));
      return;
    case wire::Type::kAttach: {
      const auto begin = Clock::now();
      const auto request = wire::attach_request_from_json(frame.body);
      if (frame.fds.size() != 1 || !is_lease_pipe(frame.fds.front().get()))
        throw Error(Errc::kProtocol,
                    "attach must come with one descriptor, the read end of the lease pipe");
      std::vector<int> fds;
      try {
        const auto reply =
            holding.attach(request, std::move(frame.fds.front()), session.peer(), fds);
        session.answer(frame.type, wire::to_json(reply), fds);
        holding.counters().attaches.add(
            std::chrono::duration<double>(Clock::now() - begin).count());
      } catch (const wire::PeerError& refusal) {
        refuse(session, refusal, false);
      }
      return;
    }
    case wire::Type::kDescribe:
      session.answer(frame.type, wire::to_json(holding.describe()));
      return;
    case wire::Type::kStatus:
      session.answer(frame.type, wire::to_json(holding.status()));
      return;
    case wire::Type::kRelease: {
      const auto request = wire::release_request_from_json(frame.body);
      const auto reply = holding.release(request, session.peer());
      session.answer(frame.type, wire::to_json(reply));
      return;
    }
    case wire::Type::kStop:
      handle_stop(session, wire::stop_request_from_json(frame.body));
      return;
    case wire::Type::kError:
      throw Error(Errc::kProtocol, "an error is an answer, not a request");
    default:
      refuse(session,
             Error(Errc::kProtocol, fmt::format("this daemon does not serve message type {}",
                                                static_cast<int>(frame.type))),
             false);
  }
}

void Server::State::handle_stop(Session& session, const wire::StopRequest& request) {
  log::info(fmt::format("pid {} asked {} to stop", session.peer().pid,
                        request.job ? "the whole job" : "this daemon"));
  session.answer(wire::Type::kStop, wire::to_json(wire::StopReply{::getpid()}));
  if (request.job && on_job_stop) {
    on_job_stop();
    return;
  }
  request_end(
      {ServeEnd::Cause::kStopRequested, 0, fmt::format("pid {} asked for it", session.peer().pid)});
}

// An answer under way names descriptors that are closed by now; their numbers may soon mean
// something else.
void Server::State::after_release() {
  std::erase_if(sessions, [](const auto& entry) { return entry.second.has_fds_to_send(); });
  if (on_released) on_released();
}

void Server::State::drop_overdue() {
  const auto now = Clock::now();
  std::vector<int> overdue;
  for (const auto& [fd, session] : sessions) {
    const auto deadline = session.deadline(options.half_request_timeout_ms);
    if (deadline && *deadline <= now) overdue.push_back(fd);
  }
  for (const int fd : overdue) {
    log::debug(fmt::format("closed the connection of pid {}: it left a message half done",
                           sessions.at(fd).peer().pid));
    drop(fd);
  }
  if (accept_again && *accept_again <= now) {
    accept_again.reset();
    watch(EPOLL_CTL_MOD, listener.get(), EPOLLIN);
  }
}

int Server::State::wait_ms() const {
  std::optional<Clock::time_point> next = accept_again;
  for (const auto& [fd, session] : sessions) {
    const auto deadline = session.deadline(options.half_request_timeout_ms);
    if (deadline && (!next || *deadline < *next)) next = deadline;
  }
  if (!next) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now());
  return static_cast<int>(std::max<std::chrono::milliseconds::rep>(left.count(), 0));
}

ServeEnd Server::State::loop() {
  std::array<epoll_event, 128> events;
  while (true) {
    const int count =
        ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), wait_ms());
    if (count < 0 && errno != EINTR) check_sys(-1, "epoll_wait");
    bool accept_due = false;
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == listener.get()) {
        accept_due = true;
      } else if (fd == holding.lease_epoll_fd()) {
        holding.end_leases();
      } else if (fd != wake.get()) {
        on_session(fd);
      }
    }
    // Last, so that a descriptor's number is not given away while its events are being handled.
    if (accept_due) accept_some();
    drop_overdue();
    if (auto end = take_wishes()) return *end;
  }
}

Server::Server(const SocketDir& directory, Residency residency, ServerOptions options)
    : state_(std::make_unique<State>(directory, std::move(residency), std::move(options))) {}

Server::~Server() {
  ::unlinkat(state_->directory.fd(), state_->holding.endpoint().socket_name().c_str(), 0);
}

void Server::admit() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->admit_wish = true;
  }
  state_->signal();
}

void Server::end(ServeEnd end) { state_->request_end(std::move(end)); }

void Server::on_job_stop(std::function<void()> callback) {
  state_->on_job_stop = std::move(callback);
}

void Server::on_released(std::function<void()> callback) {
  state_->on_released = std::move(callback);
}

ServeEnd Server::run() { return state_->loop(); }

}  // namespace preload
