// SPDX-License-Identifier: Apache-2.0
#include "run/rank_release.hpp"

#include <chrono>
#include <cstdint>

#include "memory/device.hpp"

namespace preload::run {
namespace {

constexpr std::chrono::hours kSlowestRank{24};

// Of the process, so it is the target's alone.
void measure_overhead(RankContext& rank) {
  if (rank.kind != HandleKind::kVmm && rank.kind != HandleKind::kCudaIpc) return;
  for (const Device& device : visible_devices()) {
    if (device.uuid != rank.launch.device.device) continue;
    const std::uint64_t used = process_used_bytes(device).value_or(0);
    const std::uint64_t weights = rank.bytes();
    rank.daemons.front().residency->overhead_bytes = used > weights ? used - weights : 0;
  }
}

}  // namespace

void release_all(RankContext& rank) {
  for (RoleDaemon& daemon : rank.daemons) daemon.plan = {};
  rank.group.finalize({"every rank to finish loading", rank.cancel(), kSlowestRank});
  if (rank.kind != HandleKind::kCudaIpc) {
    for (RoleDaemon& daemon : rank.daemons) {
      if (daemon.memory) daemon.memory->unmap();
    }
    if (rank.launch.cuda) give_up_context(rank.launch.device.ordinal);
  }
  measure_overhead(rank);
  rank.daemons.remove_if([](const RoleDaemon& daemon) { return !daemon.is_here(); });
  if (rank.kind == HandleKind::kCudaIpc) return;
  for (RoleDaemon& daemon : rank.daemons) daemon.memory.reset();
}

}  // namespace preload::run
