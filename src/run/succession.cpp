// SPDX-License-Identifier: Apache-2.0
#include "run/succession.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/host_limits.hpp"
#include "base/log.hpp"
#include "memory/device.hpp"
#include "serve/connect.hpp"
#include "wire/exchange.hpp"

namespace preload::run {
namespace {

constexpr int kTimeoutMs = 5000;
constexpr auto kDrainPoll = std::chrono::milliseconds(50);

bool loads(const RoleDaemon& daemon) { return daemon.is_here() && !daemon.adopted; }

// What the rank's memory has room for; what cannot be told is tried.
std::optional<std::uint64_t> free_bytes(const Launch& launch, HandleKind kind) {
  if (kind == HandleKind::kHost)
    return host_memory().available_bytes / static_cast<std::uint64_t>(launch.place.local_size);
  for (const Device& device : visible_devices())
    if (device.uuid == launch.device.device) return device.free_bytes;
  return std::nullopt;
}

// Of what is older than this process and would go: nobody here may keep it.
void forget_older(RoleDaemon& daemon) {
  daemon.offer.reset();
  daemon.inheritance.older.clear();
  daemon.inheritance.leases.clear();
}

void drain(std::list<RoleDaemon>& daemons, std::chrono::duration<double> limit,
           const Cancel& cancel) {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
  for (RoleDaemon& daemon : daemons) {
    if (!daemon.predecessor || daemon.adopted) continue;
    forget_older(daemon);
    while (const std::uint64_t open = daemon.predecessor->drain()) {
      cancel.check();
      if (std::chrono::steady_clock::now() >= deadline)
        throw Error(Errc::kTimeout,
                    fmt::format("{} is still leased by {} clients after {} s of --drain: end them, "
                                "or wait longer; the daemon that was to be replaced serves on",
                                daemon.role.endpoint.device, open, limit.count()));
      std::this_thread::sleep_for(kDrainPoll);
    }
  }
}

}  // namespace

void take_place_of(const SocketDir& directory, const cli::ServeOptions& options,
                   RoleDaemon& daemon) {
  const Endpoint& endpoint = daemon.role.endpoint;
  if (!options.replace || !lock_is_held(directory, endpoint.lock_name())) {
    daemon.lock = take_lock(directory, endpoint);
    return;
  }
  daemon.next_lock = take_named_lock(directory, endpoint.next_lock_name(),
                                     "another successor of " + endpoint.device);
  daemon.predecessor.emplace(directory, endpoint);
  Package package = daemon.predecessor->take_package();
  daemon.lock = std::move(package.lock);
  daemon.generation = package.generation + 1;
  daemon.inheritance.artifacts = std::move(package.artifacts);
  if (package.generations.empty()) return;
  if (!is_same_place(package.generations.front().endpoint, endpoint))
    throw Error(Errc::kProtocol, "the daemon handed over what is of another place");
  daemon.offer = std::move(package);
}

void make_room(Group& group, const cli::ServeOptions& options, const Launch& launch,
               HandleKind kind, std::list<RoleDaemon>& daemons, const Cancel& cancel) {
  if (!options.replace) return;
  std::uint64_t needed = 0;
  bool replaces = false;
  for (const RoleDaemon& daemon : daemons) {
    if (!loads(daemon)) continue;
    needed += daemon.bytes;
    replaces = replaces || daemon.predecessor.has_value();
  }
  const std::optional<std::uint64_t> free = free_bytes(launch, kind);
  const bool fits = !replaces || !free || needed <= *free;
  const std::vector<std::string> all =
      group.all_gather(fits ? "" : "1", {"every rank to look for room", cancel});
  if (std::ranges::all_of(all, &std::string::empty)) return;
  if (!options.drain_s) {
    if (fits) return;
    throw Error(Errc::kMemory,
                fmt::format("rank {} needs {} and {} are free beside what the replaced daemon "
                            "holds: let it go first, once its clients have, with --drain SECONDS",
                            launch.coords.global, format_bytes(needed), format_bytes(*free)));
  }
  drain(daemons, std::chrono::duration<double>(*options.drain_s), cancel);
}

void end_left_over(const SocketDir& directory, const std::list<RoleDaemon>& daemons) {
  const bool has_draft = std::ranges::any_of(
      daemons, [](const RoleDaemon& daemon) { return daemon.role.role == Role::kDraft; });
  if (has_draft || daemons.empty() || !daemons.front().predecessor) return;
  Endpoint draft = daemons.front().role.endpoint;
  draft.role = Role::kDraft;
  try {
    const Fd socket = connect_to(directory, draft.socket_name(), kTimeoutMs);
    if (wire::call_status(socket.get(), kTimeoutMs).pid != daemons.front().predecessor->pid())
      return;
    log::info(fmt::format("the draft of {} is not served any more", draft.device));
    wire::call_stop(socket.get(), {}, kTimeoutMs);
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) log::warn(error.what());  // there was none
  }
}

}  // namespace preload::run
