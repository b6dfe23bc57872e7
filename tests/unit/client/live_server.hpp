// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <thread>

#include "serve/server.hpp"
#include "unit/client/fixture_shard.hpp"

namespace preload::test {

// A daemon's serving part in this process: lock, READY state, server on a thread of its own.
class LiveServer {
 public:
  LiveServer(const std::string& directory, const FixtureShard& shard,
             Endpoint endpoint = {"host:0", "", Role::kTarget});
  LiveServer(const std::string& directory, Residency residency);
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  const SocketDir& directory() const noexcept { return directory_; }
  std::size_t leases() const;                     // asked over its socket
  bool wait_for_leases(std::size_t count) const;  // at most 5 s
  void release() const;                           // as `preload release`

 private:
  SocketDir directory_;
  Endpoint endpoint_;
  Fd lock_;
  Server server_;
  std::thread thread_;
};

}  // namespace preload::test
