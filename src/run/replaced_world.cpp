// SPDX-License-Identifier: Apache-2.0
#include "run/replaced_world.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "plan/shard_description.hpp"
#include "run/agreement.hpp"
#include "serve/directory_view.hpp"

namespace preload::run {
namespace {

using nlohmann::json;

// One job that is replaced, as all ranks of the new one see it together.
struct Job {
  int world = 1;
  std::set<int> replaced, alive;
  std::map<int, int> started_on;  // its ranks, by node

  int covered() const {
    int sum = 0;
    for (const auto& [node, size] : started_on) sum += size;
    return sum;
  }
};

std::vector<int> alive_here(const SocketDir& directory, const std::string& job) {
  std::vector<int> ranks;
  for (const DaemonView& view : view_directory(directory)) {
    if (view.live && view.live->job == job && view.live->role == role_name(Role::kTarget)) {
      ranks.push_back(view.live->global_rank);
    }
  }
  return ranks;
}

std::optional<Replaced> find_replaced(const RankContext& rank) {
  for (const RoleDaemon& daemon : rank.daemons) {
    if (daemon.role.role != Role::kTarget || !daemon.predecessor || !daemon.offer) continue;
    const Residency& before = daemon.offer->generations.front();
    return Replaced{
        before.job,        before.coords.global,   shard_from_json(before.shard_json).sizes.world(),
        before.local_size, rank.launch.place.node, alive_here(*rank.directory, before.job)};
  }
  return std::nullopt;
}

std::string encode(const std::optional<Replaced>& found) {
  if (!found) return {};
  return json{{"job", found->job},     {"rank", found->rank},
              {"world", found->world}, {"local_size", found->local_size},
              {"node", found->node},   {"alive", found->alive}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Replaced decode(const std::string& text) {
  const json value = json::parse(text);
  return {value.at("job"),        value.at("rank"), value.at("world"),
          value.at("local_size"), value.at("node"), value.at("alive")};
}

std::string remedy() {
  return "start as many ranks on the same hosts and GPUs, or end that job first (preload stop "
         "--job)";
}

}  // namespace

std::optional<std::string> torn_apart(std::span<const Replaced> found, int world) {
  std::map<std::string, Job> jobs;
  for (const Replaced& each : found) {
    Job& job = jobs[each.job];
    job.world = each.world;
    job.replaced.insert(each.rank);
    job.alive.insert(each.alive.begin(), each.alive.end());
    job.started_on[each.node] = each.local_size;
  }
  for (const auto& [name, job] : jobs) {
    std::vector<int> left;
    std::ranges::set_difference(job.alive, job.replaced, std::back_inserter(left));
    const std::string both = fmt::format(
        "--replace: job {} has {}, and the {} of this job would take the place of {} of "
        "them",
        name, counted(job.world, "rank"), counted(world, "rank"), job.replaced.size());
    if (!left.empty()) {
      return fmt::format("{}: its rank{} {} would go on alone; {}", both,
                         left.size() == 1 ? "" : "s", fmt::join(left, ", "), remedy());
    }
    // Ranks that were stopped one by one leave nobody alone; those on other hosts may serve.
    if (job.covered() < job.world) {
      return fmt::format("{}: the others are on hosts that this job has no rank on; {}", both,
                         remedy());
    }
  }
  return std::nullopt;
}

void check_replaced(RankContext& rank) {
  if (!rank.options.replace) return;
  std::optional<Replaced> mine;
  const auto failed = attempt([&] { mine = find_replaced(rank); });
  const Wait wait{"every rank to look at what it replaces", rank.cancel()};
  agree(rank.group, failed, wait);
  std::vector<Replaced> found;
  for (const std::string& text : rank.group.all_gather(encode(mine), wait)) {
    if (!text.empty()) found.push_back(decode(text));
  }
  if (const auto text = torn_apart(found, rank.group.size())) {
    throw AgreedError(Error(Errc::kUsage, *text), std::nullopt);
  }
}

}  // namespace preload::run
