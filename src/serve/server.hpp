// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/keeper_link.hpp"
#include "serve/predecessor.hpp"
#include "serve/residency.hpp"
#include "serve/session_loop.hpp"
#include "serve/socket_dir.hpp"

namespace preload {

struct ServerOptions {
  SessionOptions sessions = {};
  KeeperUse keeper = KeeperUse::kOff;
  int lock = -1;  // of the place, to hand it over; the caller's
  // A successor's: when it is to serve, it takes over the place of the daemon that has it.
  Predecessor* predecessor = nullptr;
};

// What another process had at this place before, as far as it goes on here.
struct Inheritance {
  std::vector<Residency> older;  // generations that are still leased
  std::vector<Lease> leases;
  std::vector<Artifact> artifacts;
};

// What ends serving, and with which status.
struct ServeEnd {
  enum class Cause { kStopRequested, kJobStop, kSignal, kFailure, kHandedOver };
  Cause cause = Cause::kStopRequested;
  int status = 0;
  std::string text;
};

// One thread, one epoll loop: sessions, lease pipes, wake-ups from other threads. Sessions never
// wait for each other.
class Server {
 public:
  // Replaces a stale socket (the caller holds the lock), binds 0600, listens; a successor only when
  // it is admitted. `directory` must outlive the server.
  Server(const SocketDir& directory, Residency residency, ServerOptions options,
         Inheritance inheritance = {});
  ~Server();  // closes everything and unlinks the socket, unless a successor has it
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Before run(): deposits with the keeper, if one is used and runs, and waits until it has all.
  // Throws Error(kBusy) when one is required and does not take it within `timeout_ms`.
  void deposit(int timeout_ms = 5000);
  void admit();            // thread-safe: from now on attach is answered, state READY
  void end(ServeEnd end);  // thread-safe, async-signal-safe enough for signalfd threads
  // Called on the loop when a client asks that the whole job stops.
  // Called on the loop when attaches are answered.
  void on_admitted(std::function<void()> callback);
  void on_job_stop(std::function<void()> callback);
  // Called on the loop when the handles were closed after a release. Memory that lives only in this
  // process (cuda-ipc) is to be freed then.
  void on_released(std::function<void()> callback);
  // Until end() or a stop request. What a request to stop ends is withdrawn from the keeper; it
  // keeps the rest for a successor.
  ServeEnd run();
  // After run(): whether socket and state file are left to a successor.
  bool gave_up_place() const noexcept;
  // After run(): admits nobody any more, and goes on until the last lease has ended or `deadline`.
  // Returns at once where a keeper has the leases.
  void await_leases(std::chrono::steady_clock::time_point deadline);
  // After run(), of a server whose memory is served on by another: waits until no lease is open or
  // `deadline`, and hands on those that are, and what engines have left. Nobody new is let in.
  Inheritance hand_on(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace preload
