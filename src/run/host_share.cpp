// SPDX-License-Identifier: Apache-2.0
#include "run/host_share.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/host_limits.hpp"

namespace preload::run {
namespace {

using Json = nlohmann::json;

std::uint64_t inode_of(const char* path) {
  struct stat status {};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

HostNeed own_need(const Launch& launch, std::uint64_t needed_bytes, int allocations) {
  const HostMemory memory = host_memory();
  const std::uint64_t seen_from =
      inode_of("/proc/self/ns/mnt") << 32 | inode_of("/proc/self/ns/cgroup");
  return {launch.place.node, memory.limited_by,      seen_from,
          needed_bytes,      memory.available_bytes, allocations};
}

std::string encode(const HostNeed& need) {
  return Json{need.node,         need.limited_by,      need.seen_from,
              need.needed_bytes, need.available_bytes, need.allocations}
      .dump();
}

HostNeed decode_need(const std::string& text) {
  const Json json = Json::parse(text);
  return {json[0], json[1], json[2], json[3], json[4], json[5]};
}

}  // namespace

std::optional<std::string> host_shortage(const std::vector<HostNeed>& ranks) {
  struct Sum {
    int ranks = 0;
    int allocations = 0;
    int first = 0;
    std::uint64_t needed_bytes = 0;
    std::uint64_t available_bytes = 0;
  };
  std::map<std::tuple<int, std::string, std::uint64_t>, Sum> sums;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const HostNeed& need = ranks[rank];
    const bool machine = need.limited_by == "the machine";
    const auto [at, is_new] =
        sums.try_emplace({need.node, need.limited_by, machine ? 0 : need.seen_from},
                         Sum{0, 0, static_cast<int>(rank), 0, need.available_bytes});
    Sum& sum = at->second;
    ++sum.ranks;
    sum.allocations += need.allocations;
    sum.needed_bytes += need.needed_bytes;
    sum.available_bytes = std::min(sum.available_bytes, need.available_bytes);
  }
  for (const auto& [place, sum] : sums) {
    if (sum.allocations < 2 || sum.needed_bytes <= sum.available_bytes) continue;
    return fmt::format(
        "{} of one node, from rank {} on, together need {} of host memory for the weights, "
        "but only {} are available ({}): free memory, raise the limit, or shard over more ranks of "
        "more nodes",
        counted(sum.ranks, "rank"), sum.first, format_bytes(sum.needed_bytes),
        format_bytes(sum.available_bytes), std::get<1>(place));
  }
  return std::nullopt;
}

void require_host_memory(Group& group, const Launch& launch, std::uint64_t needed_bytes,
                         int allocations, const Cancel& cancel) {
  const std::string mine = encode(own_need(launch, needed_bytes, allocations));
  std::vector<HostNeed> needs;
  for (const std::string& text : group.all_gather(mine, {"every rank's need of memory", cancel})) {
    needs.push_back(decode_need(text));
  }
  if (const auto shortage = host_shortage(needs)) throw Error(Errc::kMemory, *shortage);
}

}  // namespace preload::run
