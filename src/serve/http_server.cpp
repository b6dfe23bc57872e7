// SPDX-License-Identifier: Apache-2.0
#include "serve/http_server.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/log.hpp"
#include "serve/http_message.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMaxConnections = 64;
constexpr int kBacklog = 128;
constexpr milliseconds kConversation{5000};  // a connection's whole life
constexpr milliseconds kAcceptPause{100};    // when descriptors have run out
constexpr milliseconds kPortPause{200};      // while a predecessor has the port

class PortTaken : public Error {
  using Error::Error;
};

struct Addresses {
  explicit Addresses(const std::string& host, int port) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first);
    if (failed != 0) {
      throw Error(Errc::kUsage, fmt::format("--weight-cache-health-host '{}' is no address of this "
                                            "host: {}",
                                            host, ::gai_strerror(failed)));
    }
  }
  ~Addresses() { ::freeaddrinfo(first); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  addrinfo* first = nullptr;
};

// The first address that can be listened at.
Fd listen_http(const std::string& host, int port) {
  const Addresses addresses(host, port);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* at = addresses.first; at != nullptr; at = at->ai_next) {
    Fd socket(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    // Past the connections of a predecessor that linger; not past one that listens.
    if (socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        ::listen(socket.get(), kBacklog) == 0) {
      return socket;
    }
    error = errno;
  }
  const std::string what = fmt::format("cannot listen for /health and /metrics at {} port {}: {}",
                                       host, port, errno_text(error));
  if (error == EADDRINUSE)
    throw PortTaken(Errc::kUsage,
                    what +
                        ": another process has this port (a second job of the node needs its "
                        "own); choose another --weight-cache-health-port");
  throw Error(Errc::kUsage, what + ": choose another --weight-cache-health-host or -port");
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  check_sys(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), "getsockname");
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

struct Connection {
  Fd socket;
  Clock::time_point deadline;
  std::string in, out;
  bool answered = false;  // `out` is all there will be
  bool gone = false;
};

}  // namespace

struct HttpServer::State {
  State(const std::string& at_host, int at_port, Handler the_handler, bool successor);
  ~State();

  void open();
  bool wait_for_port();
  void run();
  void accept_some(Clock::time_point now);
  void read_from(Connection& connection);
  void write_to(Connection& connection);
  void answer(Connection& connection, std::size_t head_bytes);
  HttpReply reply_to(const HttpRequest& request);

  const std::string host;
  const int wanted_port;
  Handler handler;
  Fd listener, stop;
  std::atomic<int> port = 0;
  // When who had the port before should have ended, in the clock's ticks; 0: not yet known.
  std::atomic<Clock::rep> due = 0;
  std::list<Connection> connections;  // oldest first
  Clock::time_point accept_again{};
  std::thread thread;  // last: it uses all of the above
};

HttpServer::State::State(const std::string& at_host, int at_port, Handler the_handler,
                         bool successor)
    : host(at_host),
      wanted_port(at_port),
      handler(std::move(the_handler)),
      stop(static_cast<int>(check_sys(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"))) {
  try {
    open();
  } catch (const PortTaken&) {
    if (!successor) throw;  // else by the predecessor, presumably
  }
  thread = std::thread([this] { run(); });
}

HttpServer::State::~State() {
  ::eventfd_write(stop.get(), 1);
  thread.join();
}

void HttpServer::State::open() {
  listener = listen_http(host, wanted_port);
  port = port_of(listener.get());
}

// False when it is time to end.
bool HttpServer::State::wait_for_port() {
  bool complained = false;
  for (;;) {
    try {
      open();
      if (complained)
        log::info(fmt::format("/health and /metrics are at port {} now", port.load()));
      return true;
    } catch (const Error& error) {
      const Clock::rep at = due;
      if (at != 0 && Clock::now().time_since_epoch().count() >= at &&
          !std::exchange(complained, true))
        log::warn(fmt::format("{}; until the port is free they are not answered", error.what()));
    }
    pollfd polled{stop.get(), POLLIN, 0};
    if (::poll(&polled, 1, static_cast<int>(kPortPause.count())) > 0) return false;
  }
}

void HttpServer::State::run() {
  if (!listener && !wait_for_port()) return;
  std::vector<pollfd> polled;
  for (;;) {
    const auto before = Clock::now();
    const bool accepting = before >= accept_again;
    polled.assign({{stop.get(), POLLIN, 0}, {accepting ? listener.get() : -1, POLLIN, 0}});
    auto until = accepting ? Clock::time_point::max() : accept_again;
    for (const Connection& each : connections) {
      polled.push_back(
          {each.socket.get(), static_cast<short>(each.out.empty() ? POLLIN : POLLOUT), 0});
      until = std::min(until, each.deadline);
    }
    int wait_ms = -1;
    if (until != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<milliseconds>(until - before).count();
      wait_ms = static_cast<int>(std::max<milliseconds::rep>(0, left));
    }
    if (::poll(polled.data(), polled.size(), wait_ms) < 0) continue;  // EINTR
    if (polled[0].revents != 0) return;
    const auto now = Clock::now();
    std::size_t i = 2;
    for (Connection& each : connections) {
      const short happened = polled[i++].revents;
      if (happened != 0) each.out.empty() ? read_from(each) : write_to(each);
      if (now >= each.deadline) each.gone = true;
    }
    connections.remove_if([](const Connection& each) { return each.gone; });
    if (polled[1].revents != 0) accept_some(now);
  }
}

// One more than there is room for costs the oldest its place.
void HttpServer::State::accept_some(Clock::time_point now) {
  for (std::size_t i = 0; i < kMaxConnections; ++i) {
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        accept_again = now + kAcceptPause;
      }
      return;
    }
    if (connections.size() >= kMaxConnections) connections.pop_front();
    connections.push_back({std::move(socket), now + kConversation, {}, {}});
  }
}

void HttpServer::State::read_from(Connection& connection) {
  std::array<char, 4096> buffer;
  const ssize_t got = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    connection.gone = true;
    return;
  }
  if (connection.answered) return;  // what follows the head is of no interest
  connection.in.append(buffer.data(), static_cast<std::size_t>(got));
  const std::size_t end = http_head_end(connection.in);
  if (end != std::string::npos || connection.in.size() > kMaxHttpRequestBytes) {
    answer(connection, end);
    write_to(connection);
  }
}

void HttpServer::State::answer(Connection& connection, std::size_t head_bytes) {
  HttpReply reply;
  bool with_body = true;
  if (head_bytes > kMaxHttpRequestBytes) {
    reply = {431, "the request is too long\n"};
  } else if (const auto head = parse_http(std::string_view(connection.in).substr(0, head_bytes))) {
    with_body = head->method != "HEAD";
    reply = head->method == "GET" || head->method == "HEAD" ? reply_to(head->request)
                                                            : HttpReply{405, "GET or HEAD only\n"};
  } else {
    reply = {400, "this is no HTTP request\n"};
  }
  connection.answered = true;
  connection.out = http_text(reply, with_body);
}

HttpReply HttpServer::State::reply_to(const HttpRequest& request) {
  try {
    return handler(request);
  } catch (const std::exception& error) {
    log::warn(fmt::format("GET {} failed: {}", request.path, error.what()));
    return {500, fmt::format("{}\n", error.what())};
  }
}

void HttpServer::State::write_to(Connection& connection) {
  const ssize_t written = ::send(connection.socket.get(), connection.out.data(),
                                 connection.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (written < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (written < 0) {
    connection.gone = true;
    return;
  }
  connection.out.erase(0, static_cast<std::size_t>(written));
  // A close with bytes unread would be a reset, which may cost the client its answer: it closes.
  if (connection.out.empty()) ::shutdown(connection.socket.get(), SHUT_WR);
}

HttpServer::HttpServer(const std::string& host, int port, Handler handler, bool successor)
    : state_(std::make_unique<State>(host, port, std::move(handler), successor)) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const noexcept { return state_->port; }

void HttpServer::expect_port(milliseconds patience) noexcept {
  state_->due = (Clock::now() + patience).time_since_epoch().count();
}

}  // namespace preload
