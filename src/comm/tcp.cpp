// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

namespace preload {
namespace {

constexpr int kBacklog = 1024;

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address any_address(int family) {
  Address address;
  if (family == AF_INET6) {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    std::memcpy(&address.storage, &any, sizeof any);
    address.bytes = sizeof any;
  } else {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    std::memcpy(&address.storage, &any, sizeof any);
    address.bytes = sizeof any;
  }
  return address;
}

Address parse_address(const std::string& host, int port) {
  Address address;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(&address.storage, &v4, sizeof v4);
    address.bytes = sizeof v4;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(&address.storage, &v6, sizeof v6);
    address.bytes = sizeof v6;
  } else {
    throw Error(Errc::kInternal, fmt::format("\"{}\" is no numeric address", host));
  }
  return address;
}

// An empty Fd when this host has no such family.
Fd try_listen(int family) {
  Fd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return {};
  const int off = 0;
  if (family == AF_INET6) {
    setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  const Address any = any_address(family);
  if (bind(socket.get(), any.get(), any.bytes) != 0 || listen(socket.get(), kBacklog) != 0) {
    return {};
  }
  return socket;
}

void set_no_delay(int socket) {
  const int on = 1;  // small messages that should arrive now
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// 0 best; nothing for addresses that others cannot use.
std::optional<int> preference(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0 ||
      (entry.ifa_flags & IFF_LOOPBACK) != 0) {
    return std::nullopt;
  }
  const int family = entry.ifa_addr->sa_family;
  if (family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, entry.ifa_addr, sizeof v6);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return std::nullopt;
  } else if (family != AF_INET) {
    return std::nullopt;
  }
  static constexpr std::array<std::string_view, 5> kBridges = {"docker", "br-", "virbr", "cni",
                                                               "veth"};
  const std::string_view name = entry.ifa_name;
  const bool bridge = std::any_of(kBridges.begin(), kBridges.end(),
                                  [&](std::string_view b) { return name.starts_with(b); });
  return (bridge ? 2 : 0) + (family == AF_INET6 ? 1 : 0);
}

std::string numeric(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
  } else {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof v6);
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  }
  return text.data();
}

struct Interface {
  std::string name, address;
};

// Best first.
std::vector<Interface> usable_interfaces() {
  ifaddrs* list = nullptr;
  check_sys(getifaddrs(&list), "listing the network interfaces", Errc::kLauncher);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<std::pair<int, Interface>> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (const auto rank = preference(*entry)) {
      found.emplace_back(*rank, Interface{entry->ifa_name, numeric(*entry->ifa_addr)});
    }
  }
  std::ranges::stable_sort(found, {}, &std::pair<int, Interface>::first);
  std::vector<Interface> interfaces;
  for (auto& [rank, interface] : found) interfaces.push_back(std::move(interface));
  return interfaces;
}

}  // namespace

TcpListener listen_tcp() {
  TcpListener listener;
  listener.socket = try_listen(AF_INET6);
  if (!listener.socket) listener.socket = try_listen(AF_INET);
  if (!listener.socket) {
    throw Error(Errc::kLauncher,
                fmt::format("cannot listen on TCP for the job channel: {}", errno_text(errno)));
  }
  Address bound;
  bound.bytes = sizeof bound.storage;
  check_sys(getsockname(listener.socket.get(), bound.get(), &bound.bytes), "getsockname",
            Errc::kLauncher);
  // sin_port and sin6_port lie at the same place.
  sockaddr_in v4{};
  std::memcpy(&v4, &bound.storage, sizeof v4);
  listener.port = ntohs(v4.sin_port);
  return listener;
}

std::vector<std::string> host_addresses() {
  std::vector<std::string> addresses;
  for (const Interface& interface : usable_interfaces()) addresses.push_back(interface.address);
  return addresses;
}

std::string host_interfaces() noexcept {
  try {
    std::string text;
    for (const Interface& interface : usable_interfaces()) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", interface.name, interface.address);
    }
    return text.empty() ? "none" : text;
  } catch (const Error& error) {
    return error.what();
  }
}

Fd connect_tcp(const std::string& host, int port, std::chrono::milliseconds timeout) {
  const Address address = parse_address(host, port);
  Fd socket(static_cast<int>(
      check_sys(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                "socket", Errc::kLauncher)));
  int error = 0;
  if (connect(socket.get(), address.get(), address.bytes) != 0) error = errno;
  if (error == EINPROGRESS) {
    pollfd ready{socket.get(), POLLOUT, 0};
    const int count = poll(&ready, 1, static_cast<int>(timeout.count()));
    socklen_t bytes = sizeof error;
    if (count == 0) {
      error = ETIMEDOUT;
    } else if (count < 0 || getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) {
      error = errno;
    }
  }
  if (error != 0) throw Error(Errc::kLauncher, errno_text(error));
  set_no_delay(socket.get());
  return socket;
}

Fd accept_tcp(int listener) {
  Fd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) set_no_delay(socket.get());
  return socket;
}

}  // namespace preload
