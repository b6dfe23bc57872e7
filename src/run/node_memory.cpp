// SPDX-License-Identifier: Apache-2.0
#include "run/node_memory.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "comm/fd_exchange.hpp"
#include "run/agreement.hpp"

namespace preload::run {
namespace {

constexpr std::chrono::seconds kPatience{30};

}  // namespace

NodeMemory::NodeMemory(Group& group, const cli::ServeOptions& options, const Launch& launch,
                       const SlabMemory& memory, RankPlan& plan, const Cancel& cancel) {
  const auto failed = attempt([&] { map(group, launch, memory, plan, cancel); });
  if (options.spread == Spread::kAlways) {
    agree(group, failed, {"every rank to map its node's memory", cancel});
    return;
  }
  const std::vector<std::string> outcomes = group.all_gather(
      failed ? failed->what() : std::string(), {"every rank to map its node's memory", cancel});
  const int first = launch.place.global - launch.place.local;
  for (int rank = first; rank < first + launch.place.local_size; ++rank) {
    const std::string& outcome = outcomes.at(static_cast<std::size_t>(rank));
    if (outcome.empty()) continue;
    mapped_.clear();
    plan.reads =
        plan_own_reads(held_rows(plan.program, plan.load, plan.reads.self), plan.reads.self);
    if (launch.place.local == 0) {
      log::warn(
          fmt::format("the ranks of this node cannot hand each other what they read, so that "
                      "each reads all it holds: rank {}: {}",
                      rank, outcome));
    }
    return;
  }
}

void NodeMemory::map(Group& group, const Launch& launch, const SlabMemory& memory,
                     const RankPlan& plan, const Cancel& cancel) {
  const int first = launch.place.global - launch.place.local;
  std::vector<Fd> mine;
  std::optional<Error> failed;
  // Whoever waits for this rank's memory must not wait in vain: an error is told afterwards.
  if (!plan.reads.givers.empty()) failed = attempt([&] { mine = memory.share(); });
  FdExchange exchange{mine, {}, {}};
  for (const std::uint32_t rank : plan.reads.givers) {
    exchange.receivers.push_back(first + static_cast<int>(rank));
  }
  for (const std::uint32_t rank : plan.reads.receivers) {
    exchange.givers.push_back(first + static_cast<int>(rank));
  }
  std::map<int, std::vector<Fd>> received =
      exchange_fds(group, exchange, {"the memory of this node's other ranks", cancel, kPatience});
  if (failed) throw Error(*failed);
  for (const std::uint32_t rank : plan.reads.receivers) {
    mapped_[rank] =
        map_peer_slabs(memory.kind(), plan.node_slabs.at(rank),
                       received.at(first + static_cast<int>(rank)), launch.device.ordinal);
  }
}

}  // namespace preload::run
