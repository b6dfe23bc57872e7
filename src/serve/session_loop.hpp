// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/fd.hpp"
#include "serve/descriptor_budget.hpp"
#include "serve/session.hpp"

namespace preload {

struct SessionOptions {
  std::vector<unsigned> allow_uids;  // besides ours and root
  std::size_t max_connections = connection_capacity();
  int half_request_timeout_ms = 5000;
};

// Who answers the sessions of a loop.
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  // One whole request. An Error that it throws is answered, and ends the connection.
  virtual void handle(Session& session, wire::Frame frame) = 0;
  // The connection `fd` is about to be closed.
  virtual void closed(int fd) = 0;
  // Turned away before a request was understood: "untrusted", or an error's code.
  virtual void refused(std::string_view cause) = 0;
};

// One epoll loop: a listening socket, sessions that never wait for each other, other descriptors
// with a callback each, and wake-ups from other threads.
class SessionLoop {
 public:
  using Clock = Session::Clock;

  // `takes_packages`: whether requests may bring more than one descriptor.
  SessionLoop(SessionHandler& handler, SessionOptions options, bool takes_packages);

  void listen(Fd listener);
  Fd stop_listening();  // what waits in its backlog stays there
  int listener() const noexcept { return listener_.get(); }

  // Calls back with the events of `fd`, which stays the caller's and is unwatched before it closes.
  void watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> callback);
  void watch_for(int fd, std::uint32_t events);
  void unwatch(int fd) noexcept;

  void wake() noexcept;  // thread-safe: turn() returns
  // Waits for events, at most until `until`, and handles them.
  void turn(std::optional<Clock::time_point> until);

  // Connections that were accepted elsewhere.
  void take_over(Fd socket);
  void drop(int fd);
  // Handles what a peer that is gone sent before, then drops its connection.
  void finish(int fd);
  void drop_where(const std::function<bool(const Session&)>& condition);
  // Closes none of them: those without a request or an answer under way.
  std::vector<Fd> take_idle_sockets();
  std::size_t busy_sessions(int except) const noexcept;
  // An answer that was not ready when its request was handled.
  void answer(int fd, wire::Type type, std::string_view body, std::vector<Fd> fds);

 private:
  void control(int operation, int fd, std::uint32_t events);
  void dispatch(Session& session);
  void drop_one_for_room();
  bool accept_one();
  void accept_some();
  void welcome(Fd socket);
  void on_session(int fd);
  void converse(Session& session);
  void after(Session& session);
  void drop_overdue();
  int wait_ms(std::optional<Clock::time_point> until) const;

  SessionHandler& handler_;
  SessionOptions options_;
  bool takes_packages_;
  Fd epoll_, wake_, listener_;
  std::unordered_map<int, Session> sessions_;
  std::map<int, std::function<void(std::uint32_t)>> watched_;
  std::optional<Clock::time_point> accept_again_;  // set while accepting pauses
  bool complained_ = false;                        // about the present lack of descriptors
};

// An error as an answer; the connection goes on.
void refuse(Session& session, const Error& error);

}  // namespace preload
