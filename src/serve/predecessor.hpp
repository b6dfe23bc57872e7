// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/fd.hpp"
#include "serve/package.hpp"
#include "serve/socket_dir.hpp"

namespace preload {

// What a daemon still has when its successor begins to serve.
struct TakenOver {
  Fd listener;  // empty: the daemon is gone, and its socket is to be bound anew
  std::vector<Lease> leases;
  std::vector<Artifact> artifacts;  // that are younger than the package
  std::vector<Fd> clients;          // connections
};

// A successor's part of a handover: from its construction on the daemon at `endpoint` is ready to
// be succeeded, and serves on until done().
class Predecessor {
 public:
  // Throws Error(kBusy) when the daemon there is not READY, is being succeeded by another, or does
  // not answer within `timeout_ms`, which goes for each step.
  Predecessor(const SocketDir& directory, const Endpoint& endpoint, int timeout_ms = 5000);

  // What it serves, and its lock. Once.
  Package take_package() { return std::move(package_); }
  int pid() const noexcept { return pid_; }
  // No more attaches, until this object goes; the leases that are open still.
  std::uint64_t drain();
  // Frees what was drained, for good. Throws Error(kBusy) while somebody leases it.
  void free();
  // It stops to accept. Does not fail: one that is gone by now has nothing any more, and one that
  // hangs ends when it finds the place taken (while its successors' lock was held).
  TakenOver take_over() noexcept;
  void done() noexcept;  // its process may end

 private:
  int timeout_ms_;
  Fd socket_;
  int pid_ = 0;
  Package package_;
};

}  // namespace preload
