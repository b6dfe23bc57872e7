// SPDX-License-Identifier: Apache-2.0
#include "doctor/network_checks.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

namespace preload::doctor {
namespace {

constexpr const char* kNetwork = "network";

std::vector<std::string> items_of(const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) items.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

bool is_subnet(const std::string& item) { return item.find('/') != item.npos; }

// As NCCL reads its list: '^' excludes, '=' wants the whole name instead of its beginning.
bool nccl_finds(std::string list, const std::vector<Interface>& interfaces) {
  if (list.starts_with('^')) return true;
  const bool whole = list.starts_with('=');
  if (whole) list.erase(0, 1);
  return std::ranges::any_of(items_of(list), [&](const std::string& item) {
    const std::string name = item.substr(0, item.find(':'));
    return std::ranges::any_of(interfaces, [&](const Interface& each) {
      return whole ? each.name == name : each.name.starts_with(name);
    });
  });
}

// The first item that names nothing here; Open MPI's lists take interfaces and subnets.
std::string unknown_interface(const std::string& list, const std::vector<Interface>& interfaces) {
  for (const std::string& item : items_of(list)) {
    if (is_subnet(item) ||
        std::ranges::find(interfaces, item, &Interface::name) != interfaces.end())
      continue;
    return item;
  }
  return {};
}

// UCX takes "mlx5_0:1", interfaces, and "all".
std::string unknown_device(const std::string& list, const std::vector<Interface>& interfaces,
                           const std::vector<std::string>& adapters) {
  for (const std::string& item : items_of(list)) {
    const std::string name = item.substr(0, item.find(':'));
    if (name == "all" || name.find('*') != name.npos) continue;
    if (std::ranges::find(adapters, name) != adapters.end()) continue;
    if (std::ranges::find(interfaces, name, &Interface::name) != interfaces.end()) continue;
    return item;
  }
  return {};
}

}  // namespace

std::vector<Interface> gather_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    const int family = each->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> text{};
    const auto size =
        static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (::getnameinfo(each->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) ==
        0) {
      interfaces.push_back({each->ifa_name, text.data()});
    }
  }
  return interfaces;
}

std::vector<std::string> gather_adapters(const std::string& sys) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator at(sys + "/class/infiniband", failed), end;
       !failed && at != end; at.increment(failed)) {
    names.push_back(at->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

Check check_network(const std::vector<Interface>& interfaces,
                    const std::vector<std::string>& adapters, const Variables& variables) {
  std::vector<std::string> others;
  for (const Interface& each : interfaces) {
    if (each.name == "lo" || each.address.starts_with("fe80:")) continue;
    others.push_back(fmt::format("{} {}", each.name, each.address));
  }
  const std::string there = fmt::format(
      "{}{}", others.empty() ? "loopback alone" : fmt::format("{}", fmt::join(others, ", ")),
      adapters.empty() ? "" : fmt::format("; adapters {}", fmt::join(adapters, ", ")));
  const auto refused = [&](const char* name, const std::string& item) {
    return fail(kNetwork, Errc::kLauncher,
                fmt::format("{}=\"{}\" names {}, which this host does not have: {}", name,
                            variables.text(name), item, there),
                fmt::format("name interfaces that all hosts have, or unset {}", name));
  };
  const std::string nccl = variables.text("NCCL_SOCKET_IFNAME");
  if (!nccl.empty() && !nccl_finds(nccl, interfaces))
    return refused("NCCL_SOCKET_IFNAME", "nothing");
  for (const char* name : {"OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include"}) {
    const std::string item = unknown_interface(variables.text(name), interfaces);
    if (!item.empty()) return refused(name, item);
  }
  const std::string device =
      unknown_device(variables.text("UCX_NET_DEVICES"), interfaces, adapters);
  if (!device.empty()) return refused("UCX_NET_DEVICES", device);
  if (others.empty()) {
    return warn(kNetwork, "there is loopback alone: ranks of other hosts cannot reach this one",
                "a job on one host needs no more; for several, bring an interface up");
  }
  return ok(kNetwork, there);
}

}  // namespace preload::doctor
