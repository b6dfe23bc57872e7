// SPDX-License-Identifier: Apache-2.0
#include "run/make_room.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.hpp"
#include "base/host_limits.hpp"
#include "base/log.hpp"
#include "memory/device.hpp"
#include "run/agreement.hpp"
#include "serve/connect.hpp"
#include "serve/keeper.hpp"
#include "wire/exchange.hpp"

namespace preload::run {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kKeeperTimeoutMs = 5000;
constexpr auto kDrainPoll = std::chrono::milliseconds(100);

bool loads(const RoleDaemon& daemon) { return daemon.is_here() && !daemon.adopted; }

bool any_of(Group& group, bool mine, const Cancel& cancel) {
  const std::vector<std::string> all =
      group.all_gather(mine ? "1" : "", {"every rank to look for room", cancel});
  return !std::ranges::all_of(all, &std::string::empty);
}

// What can be had of the rank's memory; what cannot be told is tried.
struct Room {
  std::optional<std::uint64_t> free_bytes, total_bytes;
};

Room room_of(const RankContext& rank) {
  if (rank.kind == HandleKind::kHost) {
    const HostMemory memory = host_memory();
    const auto shares = static_cast<std::uint64_t>(rank.launch.place.local_size);
    return {memory.available_bytes / shares, memory.total_bytes};
  }
  for (const Device& device : visible_devices())
    if (device.uuid == rank.launch.device.device)
      return {device.free_bytes,
              device.total_bytes > 0 ? std::optional(device.total_bytes) : std::nullopt};
  return {};
}

class RoomMaker {
 public:
  explicit RoomMaker(RankContext& rank) : rank_(rank) {
    for (const RoleDaemon& daemon : rank.daemons) {
      if (!loads(daemon)) continue;
      needed_ += daemon.bytes;
      replaces_ = replaces_ || daemon.predecessor.has_value();
      keeps_ = keeps_ || daemon.keeper_has_other;
    }
  }

  void run() {
    agree(rank_.group, never_fits(), wait());
    if (!any_of(rank_.group, !fits(), rank_.cancel())) return;
    if (any_of(rank_.group, keeps_, rank_.cancel())) {
      withdraw();
      if (!any_of(rank_.group, !fits(), rank_.cancel())) return;
    }
    if (!any_of(rank_.group, replaces_, rank_.cancel())) return;  // allocating says what is missing
    agree(rank_.group, not_allowed(), wait());
    if (rank_.options.drain_s) drain();
  }

 private:
  Wait wait() const { return {"every rank to look for room", rank_.cancel()}; }

  // Without anything to let go of it is for the allocation to say.
  bool fits() const {
    if (!replaces_ && !keeps_) return true;
    const std::optional<std::uint64_t> free = room_of(rank_).free_bytes;
    return !free || needed_ <= *free;
  }

  std::optional<Error> never_fits() const {
    const std::optional<std::uint64_t> total = room_of(rank_).total_bytes;
    if (!total || needed_ <= *total) return std::nullopt;
    return Error(
        Errc::kMemory,
        fmt::format("rank {} needs {}, and its share of all the memory is {}: it cannot "
                    "fit, whatever is let go of; use more ranks or a smaller dtype",
                    rank_.launch.coords.global, format_bytes(needed_), format_bytes(*total)));
  }

  std::optional<Error> not_allowed() const {
    if (rank_.options.drain_s || fits()) return std::nullopt;
    return Error(
        Errc::kMemory,
        fmt::format("rank {} needs {} and {} are free beside what the replaced daemon holds: let "
                    "it go first, once its clients have, with --drain SECONDS",
                    rank_.launch.coords.global, format_bytes(needed_),
                    format_bytes(room_of(rank_).free_bytes.value_or(0))));
  }

  // A part of a model is of no use: what one rank's keeper lets go of, all do.
  void withdraw() {
    for (RoleDaemon& daemon : rank_.daemons) {
      if (!daemon.keeper_has_other) continue;
      log::warn(
          fmt::format("the keeper lets go of what it has of {} before anything is loaded: "
                      "the memory is needed",
                      daemon.role.endpoint.device));
      try {
        const Fd socket =
            connect_to(*rank_.directory, std::string(kKeeperSocket), kKeeperTimeoutMs);
        wire::call_withdraw(socket.get(), daemon.role.endpoint.stem(), kKeeperTimeoutMs);
        daemon.keeper_has_other = false;
      } catch (const Error& error) {
        log::warn(fmt::format("the keeper was not told to let go of {}: {}",
                              daemon.role.endpoint.device, error.what()));
      }
    }
  }

  std::vector<RoleDaemon*> drained() const {
    std::vector<RoleDaemon*> drained;
    for (RoleDaemon& daemon : rank_.daemons)
      if (daemon.predecessor && !daemon.adopted) drained.push_back(&daemon);
    return drained;
  }

  void drain() {
    const std::vector<RoleDaemon*> daemons = drained();
    const auto limit = std::chrono::duration<double>(*rank_.options.drain_s);
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
    // What is older than this process and would go: nobody here may keep it.
    for (RoleDaemon* daemon : daemons) {
      daemon->offer.reset();
      daemon->inheritance.older.clear();
      daemon->inheritance.leases.clear();
    }
    while (true) {
      std::uint64_t open = 0;
      agree(rank_.group, attempt([&] { open = still_leased(daemons, deadline); }), wait());
      if (!any_of(rank_.group, open > 0, rank_.cancel())) break;
      std::this_thread::sleep_for(kDrainPoll);
    }
    const auto free = [&] {
      for (RoleDaemon* daemon : daemons) daemon->predecessor->free();
    };
    agree(rank_.group, attempt(free), wait());
  }

  std::uint64_t still_leased(const std::vector<RoleDaemon*>& daemons,
                             Clock::time_point deadline) const {
    std::uint64_t all = 0;
    for (RoleDaemon* daemon : daemons) {
      const std::uint64_t open = daemon->predecessor->drain();
      all += open;
      if (open > 0 && Clock::now() >= deadline)
        throw Error(Errc::kTimeout,
                    fmt::format("{} is still leased by {} clients after {} s of --drain: end them, "
                                "or wait longer; the daemon that was to be replaced serves on",
                                daemon->role.endpoint.device, open, *rank_.options.drain_s));
    }
    return all;
  }

  RankContext& rank_;
  std::uint64_t needed_ = 0;
  bool replaces_ = false;
  bool keeps_ = false;
};

}  // namespace

void make_room(RankContext& rank) {
  const bool declined = std::ranges::any_of(rank.daemons, &RoleDaemon::declined);
  if (rank.options.replace || declined) RoomMaker(rank).run();
}

}  // namespace preload::run
