// SPDX-License-Identifier: Apache-2.0
#include "run/rank_load.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "cli/draft_options.hpp"
#include "load/hash_files.hpp"
#include "run/adoption.hpp"
#include "run/cpu_binding.hpp"
#include "run/fill.hpp"
#include "run/host_share.hpp"
#include "run/make_room.hpp"
#include "run/residency_build.hpp"
#include "run/shared_receipt.hpp"
#include "run/source_audit.hpp"

namespace preload::run {
namespace {

// A draft that cannot be held is dropped here, and the job goes on without.
void plan(RankContext& rank) {
  if (rank.launch.coords.global == 0) {
    if (const auto reason = cli::why_not_held(rank.options.model)) log::warn(*reason);
  }
  const RankPlan* target = nullptr;
  for (auto daemon = rank.daemons.begin(); daemon != rank.daemons.end();) {
    auto plan =
        plan_rank(rank.group, rank.options, rank.launch, daemon->role, target, rank.cancel());
    if (!plan) {
      if (daemon->is_here()) rank.keeper->stopped(daemon->role.endpoint);
      daemon = rank.daemons.erase(daemon);
      continue;
    }
    daemon->plan = std::move(*plan);
    daemon->bytes = daemon->plan.load.slabs.total_bytes();
    daemon->progress.total_bytes = daemon->plan.reads.read_bytes;
    if (daemon->role.role == Role::kTarget) target = &daemon->plan;
    ++daemon;
  }
  rank.front.expect(rank.local_daemons());
  rank.group.barrier({"every rank's plan", rank.cancel()});
}

void adopt(RankContext& rank) {
  for (RoleDaemon& daemon : rank.daemons) {
    find_offer(*rank.directory, rank.options, daemon);
    daemon.adopted =
        run::adopt(rank.group, rank.options, rank.launch, rank.kind, daemon, rank.cancel());
  }
}

void allocate(RankContext& rank) {
  const CpuBinding binding(rank.launch.device.device);
  log::info(binding.account());
  if (rank.kind == HandleKind::kHost) {
    std::uint64_t needed = 0;
    int here = 0;
    for (const RoleDaemon& daemon : rank.daemons) {
      if (daemon.adopted) continue;
      needed += daemon.bytes;
      here += daemon.is_here() ? 1 : 0;
    }
    require_host_memory(rank.group, rank.launch, needed, here, rank.cancel());
  }
  for (RoleDaemon& daemon : rank.daemons) {
    if (daemon.adopted) continue;
    daemon.memory =
        allocate_slabs(rank.kind, daemon.plan.load.slabs.slabs, rank.launch.device.ordinal);
  }
}

void load(RankContext& rank, RoleDaemon& daemon) {
  const Launch& launch = rank.launch;
  RankPlan& plan = daemon.plan;
  const CpuBinding binding(launch.device.device);
  const LoadResult result =
      fill(rank.group, rank.options, launch, plan, *daemon.memory, daemon.progress, rank.cancel());
  const double rate = result.seconds > 0 ? static_cast<double>(result.bytes_read) /
                                               static_cast<double>(kGiB) / result.seconds
                                         : 0;
  log::info(fmt::format("{}: this rank read {} in {:.2f} s ({:.2f} GiB/s)",
                        role_name(daemon.role.role), format_bytes(result.bytes_read),
                        result.seconds, rate));

  const std::vector<SourceHash> sources = audit_sources(
      rank.group, plan, result, rank.options.threads,
      {std::nullopt, reads_in_flight(rank.options, launch), &daemon.progress.reads}, rank.cancel());
  if (launch.coords.global == 0) remember_hashes(plan.checkpoint, sources);
  std::string receipt = share_receipt(rank.group, plan, rank.cancel());
  if (daemon.is_here()) {
    daemon.residency = build_residency(launch, daemon.role, plan, result,
                                       checkpoint_id(plan.checkpoint, sources), std::move(receipt));
    daemon.residency->generation = daemon.generation;
  }
}

}  // namespace

void load_roles(RankContext& rank) {
  plan(rank);
  adopt(rank);
  make_room(rank);
  allocate(rank);
  for (RoleDaemon& daemon : rank.daemons) {
    if (!daemon.adopted) load(rank, daemon);
  }
  for (RoleDaemon& daemon : rank.daemons) {
    if (daemon.is_here()) daemon.residency->slabs = daemon.memory->export_handles();
  }
}

}  // namespace preload::run
