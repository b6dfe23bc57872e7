// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "memory/slab.hpp"
#include "plan/key.hpp"
#include "plan/topology.hpp"
#include "serve/socket_dir.hpp"

namespace preload {

// Everything a rank serves. Needs no CUDA, no MPI: handles, a sealed manifest and text.
struct Residency {
  Endpoint endpoint;
  std::string job;
  std::string model;
  RankCoords coords;
  KeyFields fields;
  std::string key;         // digest of fields
  std::string checkpoint;  // checkpoint id
  std::string receipt_json;
  std::uint64_t generation = 1;
  std::uint64_t overhead_bytes = 0;  // device memory of this process above the weights, measured
  Fd manifest;                       // sealed memfd
  std::uint64_t tensor_count = 0;
  std::vector<SlabHandle> slabs;
};

struct ServerOptions {
  std::vector<unsigned> allow_uids;     // besides ours and root
  std::size_t max_connections = 256;
  int half_request_timeout_ms = 5000;
};

// What ends serving, and with which status.
struct ServeEnd {
  enum class Cause { kStopRequested, kJobStop, kSignal, kFailure };
  Cause cause = Cause::kStopRequested;
  int status = 0;
  std::string text;
};

// One thread, one epoll loop: sessions, lease pipes, wake-ups from other threads. Sessions never
// wait for each other.
class Server {
 public:
  // Replaces a stale socket (the caller holds the lock), binds 0600, listens. `socket_dir` must
  // outlive the server.
  Server(const SocketDir& directory, Residency residency, ServerOptions options);
  ~Server();  // closes everything and unlinks the socket
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void admit();                  // thread-safe: from now on attach is answered, state READY
  void end(ServeEnd end);        // thread-safe, async-signal-safe enough for signalfd threads
  // Called on the loop when a client asks that the whole job stops.
  void on_job_stop(std::function<void()> callback);
  ServeEnd run();                // until end() or a stop request

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace preload
