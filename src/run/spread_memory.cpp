// SPDX-License-Identifier: Apache-2.0
#include "run/spread_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "comm/fd_exchange.hpp"
#include "comm/group_exchange.hpp"
#include "comm/nccl_exchange.hpp"
#include "load/rounds.hpp"
#include "run/agreement.hpp"

namespace preload::run {
namespace {

constexpr std::chrono::seconds kPatience{30};
constexpr std::chrono::seconds kNcclPatience{90};
constexpr std::chrono::hours kSlowestRank{24};

// What the ranks of a job ran into, by rank; empty texts where nothing.
std::vector<std::string> outcomes(Group& group, const std::optional<Error>& failed,
                                  std::string_view what, const Cancel& cancel) {
  return group.all_gather(failed ? failed->what() : std::string(), {what, cancel});
}

}  // namespace

SpreadMemory::SpreadMemory(Group& group, const cli::ServeOptions& options, const Launch& launch,
                           const SlabMemory& memory, RankPlan& plan, const Cancel& cancel) {
  const auto unmapped =
      attempt([&] { map(group, launch, memory, plan.spread, plan.reads, cancel); });
  const std::vector<std::string> mapping =
      outcomes(group, unmapped, "every rank to map its node's memory", cancel);
  // Nodes whose ranks cannot map each other's memory: there all goes by messages.
  std::set<int> apart;
  for (std::size_t rank = 0; rank < mapping.size(); ++rank) {
    if (!mapping[rank].empty()) apart.insert(launch.places[rank].node);
  }
  if (apart.contains(launch.place.node)) mapped_.clear();

  const SpreadGroup& spread = plan.spread.group;
  const auto by_message = [&](std::uint32_t member) {
    const int node = launch.places[static_cast<std::size_t>(spread.first) + member].node;
    return node != launch.place.node || apart.contains(node);
  };
  std::erase_if(plan.spread.incoming,
                [&](const ReadPlan& incoming) { return !by_message(incoming.self); });
  const bool mine =
      !plan.spread.incoming.empty() || std::ranges::any_of(plan.reads.receivers, by_message);
  const std::vector<std::string> wanted =
      group.all_gather(mine ? "messages" : "", {"every rank's way to the others", cancel});
  if (std::ranges::all_of(wanted, &std::string::empty)) return;

  const auto failed = attempt([&] {
    if (memory.kind() == HandleKind::kHost) {
      exchange_ = std::make_unique<GroupExchange>(
          group, spread.first,
          Wait{"the ranks that read for this one, or that it reads for", cancel, kSlowestRank});
    } else {
      exchange_ = make_nccl_exchange(group, {spread.first, spread.count}, options.nccl_library,
                                     {"NCCL between the ranks", cancel, kNcclPatience});
    }
  });
  if (options.spread == Spread::kAlways) {
    agree(group, failed, {"every rank's way to the others", cancel});
  }
  const std::vector<std::string> starting =
      outcomes(group, failed, "every rank's way to the others", cancel);
  const auto bad = std::ranges::find_if_not(starting, &std::string::empty);
  if (bad == starting.end()) {
    if (mine) {
      messages_.emplace(LoadMessages{*exchange_, std::move(plan.spread.incoming),
                                     round_bytes(plan.spread.most_givers, options.ring_bytes)});
    }
    return;
  }
  if (exchange_) exchange_->abort();
  exchange_.reset();
  mapped_.clear();
  plan.reads = plan_own_reads(held_rows(plan.program, plan.load, plan.reads.self), plan.reads.self);
  if (launch.place.global == 0) {
    const auto mapping_failed = std::ranges::find_if_not(mapping, &std::string::empty);
    log::warn(fmt::format(
        "the ranks cannot hand each other what they read, so that each reads all "
        "it holds: rank {}: {}{}",
        bad - starting.begin(), *bad,
        mapping_failed == mapping.end()
            ? ""
            : fmt::format("; rank {}: {}", mapping_failed - mapping.begin(), *mapping_failed)));
  }
}

std::byte* SpreadMemory::address(std::uint32_t member, std::uint32_t slab) const noexcept {
  const auto at = mapped_.find(member);
  return at == mapped_.end() ? nullptr : at->second->address(slab);
}

void SpreadMemory::map(Group& group, const Launch& launch, const SlabMemory& memory,
                       const SpreadPlan& spread, const ReadPlan& reads, const Cancel& cancel) {
  const auto near = [&](std::uint32_t member) {
    return launch.places[static_cast<std::size_t>(spread.group.first) + member].node ==
           launch.place.node;
  };
  std::vector<Fd> mine;
  std::optional<Error> failed;
  FdExchange exchange{mine, {}, {}};
  for (const std::uint32_t member : reads.givers) {
    if (near(member)) exchange.receivers.push_back(spread.group.first + static_cast<int>(member));
  }
  for (const std::uint32_t member : reads.receivers) {
    if (near(member)) exchange.givers.push_back(spread.group.first + static_cast<int>(member));
  }
  // Whoever waits for this rank's memory must not wait in vain: an error is told afterwards.
  if (!exchange.receivers.empty()) failed = attempt([&] { mine = memory.share(); });
  std::map<int, std::vector<Fd>> received =
      exchange_fds(group, exchange, {"the memory of this node's other ranks", cancel, kPatience});
  if (failed) throw Error(*failed);
  for (const int rank : exchange.givers) {
    const std::uint32_t member = spread.group.member(rank);
    mapped_[member] = map_peer_slabs(memory.kind(), spread.slabs.at(member), received.at(rank),
                                     launch.device.ordinal);
  }
}

}  // namespace preload::run
