// SPDX-License-Identifier: Apache-2.0
#include "unit/client/live_server.hpp"

#include <chrono>

#include "serve/connect.hpp"
#include "wire/exchange.hpp"

namespace preload::test {

constexpr int kTimeoutMs = 5000;

LiveServer::LiveServer(const std::string& directory, const FixtureShard& shard, Endpoint endpoint)
    : LiveServer(directory, shard.residency(std::move(endpoint))) {}

LiveServer::LiveServer(const std::string& directory, Residency residency)
    : directory_(SocketDir::open(directory, true)),
      endpoint_(residency.endpoint),
      lock_(take_lock(directory_, endpoint_)),
      server_(directory_, std::move(residency), {}) {
  server_.admit();
  StateFile state;
  state.state = "READY";
  write_state(directory_, endpoint_, state);
  thread_ = std::thread([this] { server_.run(); });
}

LiveServer::~LiveServer() {
  server_.end({});
  thread_.join();
}

std::size_t LiveServer::leases() const {
  const Fd socket = connect_to(directory_, endpoint_.socket_name(), kTimeoutMs);
  return wire::call_status(socket.get(), kTimeoutMs).leases.size();
}

bool LiveServer::wait_for_leases(std::size_t count) const {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTimeoutMs);
  while (leases() != count) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

void LiveServer::release() const {
  const Fd socket = connect_to(directory_, endpoint_.socket_name(), kTimeoutMs);
  wire::call_release(socket.get(), {}, kTimeoutMs);
}

}  // namespace preload::test
