// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace preload {

struct TcpListener {
  Fd socket;
  int port = 0;
};
// On every interface (IPv6 and IPv4 in one socket where the host has IPv6), at a free port.
TcpListener listen_tcp();

// Numeric addresses of this host that others may reach, best first: physical-looking interfaces
// before bridges of containers, IPv4 before IPv6, loopback and link-local never.
std::vector<std::string> host_addresses();

// "eth0 10.0.0.1, ib0 10.1.0.1", or "none": for messages about hosts that do not reach each other.
std::string host_interfaces() noexcept;

// A connected, non-blocking, CLOEXEC socket. Throws Error(kLauncher) with errno's text.
Fd connect_tcp(const std::string& host, int port, std::chrono::milliseconds timeout);
// The next waiting connection, or an empty Fd when there is none (or no descriptor is left).
Fd accept_tcp(int listener);

}  // namespace preload
