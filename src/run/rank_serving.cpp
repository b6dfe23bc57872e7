// SPDX-License-Identifier: Apache-2.0
#include "run/rank_serving.hpp"

#include <chrono>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "load/run_threads.hpp"
#include "run/succession.hpp"

namespace preload::run {
namespace {

// What ends the rank ends every role; these end one, and the last one's the rank.
bool ends_one_role(const ServeEnd& end) noexcept {
  return end.cause == ServeEnd::Cause::kStopRequested || end.cause == ServeEnd::Cause::kHandedOver;
}

}  // namespace

void RankServing::open(RoleDaemon& daemon) {
  ServerOptions options;
  options.sessions.allow_uids = rank_.directory->allow_uids();
  options.keeper = rank_.options.keeper;
  options.lock = daemon.lock.get();
  options.predecessor = daemon.predecessor ? &*daemon.predecessor : nullptr;
  daemon.server = std::make_unique<Server>(*rank_.directory, std::move(*daemon.residency),
                                           std::move(options), std::move(daemon.inheritance));
  daemon.server->deposit();
  daemon.server->on_admitted([this, &daemon] { admitted(daemon); });
  daemon.server->on_job_stop([this] { rank_.supervision.request_stop(); });
  daemon.server->on_released([&daemon] { daemon.memory.reset(); });
}

ServeEnd RankServing::run() {
  std::vector<RoleDaemon*> daemons;
  std::vector<Server*> servers;
  for (RoleDaemon& daemon : rank_.daemons) {
    open(daemon);
    daemons.push_back(&daemon);
    servers.push_back(daemon.server.get());
  }
  roles_served_ = roles_to_admit_ = daemons.size();
  std::vector<ServeEnd> ends(daemons.size());
  {
    const RankControl::Serving serving(rank_.control, servers);
    rank_.front.watch(daemons.front()->role.endpoint.socket_name());
    rank_.supervision.bound();
    run_threads(static_cast<int>(daemons.size()), [&](int i, const std::atomic<bool>&) {
      const auto role = static_cast<std::size_t>(i);
      try {
        ends[role] = serve(*daemons[role]);
      } catch (const std::exception& error) {
        leave_place_of(*daemons[role]);
        rank_.control.end({ServeEnd::Cause::kFailure, exit_status(Errc::kInternal), error.what()});
        throw;
      }
    });
  }
  // Who asks is not told of sockets that are being closed on request. After a failure it is told
  // why, for as long as this process lives.
  if (rank_.control.decided().value_or(ends.front()).cause != ServeEnd::Cause::kFailure) {
    rank_.front.close_health();
  }
  for (const ServeEnd& end : ends) {
    if (!ends_one_role(end)) return end;
  }
  return ends.front();
}

// A successor's state file is not to be written over.
void RankServing::leave_place_of(const RoleDaemon& daemon) {
  if (daemon.server && daemon.server->gave_up_place())
    rank_.keeper->handed_over(daemon.role.endpoint);
}

ServeEnd RankServing::serve(RoleDaemon& daemon) {
  ServeEnd end = daemon.server->run();
  leave_place_of(daemon);
  if (!ends_one_role(end) || --roles_served_ == 0) return end;
  // The other roles go on, and this one's place is free.
  rank_.control.forget(*daemon.server);
  if (end.cause == ServeEnd::Cause::kStopRequested) {
    daemon.server->await_leases(std::chrono::steady_clock::now() + rank_.options.lease_wait);
  }
  daemon.server.reset();
  daemon.memory.reset();
  rank_.keeper->stopped(daemon.role.endpoint);
  daemon.lock.reset();
  return end;
}

// On the role's own loop, once it answers attaches.
void RankServing::admitted(RoleDaemon& daemon) {
  note_holder(daemon.lock);
  daemon.next_lock.reset();
  if (--roles_to_admit_ > 0) return;
  rank_.front.serving();
  end_left_over(*rank_.directory, rank_.daemons);
  // On the keeper's thread, which may come to it when this object is gone.
  rank_.keeper->ready([&rank = rank_] { rank.front.ready(rank.kind, rank.bytes()); });
}

}  // namespace preload::run
