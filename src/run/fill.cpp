// SPDX-License-Identifier: Apache-2.0
#include "run/fill.hpp"

#include <string>
#include <utility>
#include <vector>

#include "run/host_share.hpp"
#include "run/spread_memory.hpp"

namespace preload::run {
namespace {

constexpr std::chrono::hours kSlowestRank{24};

// What every other rank says that it handed to this one.
std::vector<GivenHash> collect_given(Group& group, const SpreadGroup& spread,
                                     const std::vector<GivenHash>& given, const Cancel& cancel) {
  std::vector<std::vector<GivenHash>> by_rank(static_cast<std::size_t>(group.size()));
  for (const GivenHash& each : given) {
    by_rank.at(static_cast<std::size_t>(spread.first) + each.owner).push_back(each);
  }
  std::vector<std::string> parts;
  for (const auto& each : by_rank) parts.push_back(encode_given(each));
  std::vector<GivenHash> received;
  for (const std::string& part :
       group.all_to_all(parts, {"the other ranks to finish loading", cancel, kSlowestRank})) {
    const std::vector<GivenHash> more = decode_given(part);
    received.insert(received.end(), more.begin(), more.end());
  }
  return received;
}

}  // namespace

ReadsInFlight reads_in_flight(const cli::ServeOptions& options, const Launch& launch) {
  return share_of_reads(options.reads_in_flight, launch.place.local_size);
}

LoadResult fill(Group& group, const cli::ServeOptions& options, const Launch& launch,
                RankPlan& plan, SlabMemory& memory, LoadProgress& progress, const Cancel& cancel) {
  LoadOptions how;
  how.ring_bytes = options.ring_bytes;
  how.threads = options.threads;
  how.method = options.reader;
  how.in_flight = reads_in_flight(options, launch);
  how.device = launch.device.ordinal;
  how.keep_tuning = launch.place.local == 0;  // its node's others measure the same
  if (!may_spread(options, launch)) {
    const LoadWork work{plan.load, plan.program, plan.checkpoint, plan.reads, memory};
    LoadResult result = load(work, how, progress, cancel);
    finish_load(result, work, {}, how, cancel);
    return result;
  }
  const SpreadMemory others(group, options, launch, memory, plan, cancel);
  progress.total_bytes = plan.reads.read_bytes;
  how.before_reading = [&] {
    group.barrier({"every rank's memory to be ready", cancel, kSlowestRank});
  };
  const LoadWork work{plan.load, plan.program, plan.checkpoint,  plan.reads,
                      memory,    &others,      others.messages()};
  LoadResult result = load(work, how, progress, cancel);
  finish_load(result, work, collect_given(group, plan.spread.group, result.given, cancel), how,
              cancel);
  return result;
}

}  // namespace preload::run
