// SPDX-License-Identifier: Apache-2.0
#include "run/warmup_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"

namespace preload::run {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLabel = 3;  // "gpu" or "mig"

// The ranks that one hook is for.
struct World {
  int first = 0, size = 1;
};

World world_of(cli::WarmupScope scope, const Launch& launch) {
  if (scope == cli::WarmupScope::kRank) return {0, launch.sizes.world()};
  const int size = launch.sizes.tp * launch.sizes.pp;
  return {launch.coords.dp * size, size};
}

const RankPlace& place_of(const Launch& launch, int global) {
  return launch.places.at(static_cast<std::size_t>(global));
}

std::vector<int> local_members(const Launch& launch, const World& world, int node) {
  std::vector<int> members;
  for (int rank = world.first; rank < world.first + world.size; ++rank) {
    if (place_of(launch, rank).node == node) members.push_back(rank);
  }
  return members;
}

// CUDA takes "GPU-…" and "MIG-…" with a label in capitals.
std::string visible_by_uuid(std::string device) {
  for (std::size_t i = 0; i < std::min(kLabel, device.size()); ++i) {
    device[i] = static_cast<char>(std::toupper(static_cast<unsigned char>(device[i])));
  }
  return device;
}

// By the ranks' own numbers where these tell the GPUs apart, as engines like them best; a launcher
// that shows each rank its own GPU as number 0 leaves UUIDs.
std::string visible_devices(const std::vector<WarmupFacts>& ranks,
                            const std::vector<int>& members) {
  std::vector<std::string> names;
  for (const int rank : members) {
    const std::string& name = ranks.at(static_cast<std::size_t>(rank)).visible;
    if (name.empty()) return {};
    names.push_back(name);
  }
  const std::set<std::string> distinct(names.begin(), names.end());
  if (distinct.size() != names.size()) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      names[i] = visible_by_uuid(ranks.at(static_cast<std::size_t>(members[i])).device);
    }
  }
  return fmt::format("{}", fmt::join(names, ","));
}

bool on_one_node(const Launch& launch, const World& world) {
  const int node = place_of(launch, world.first).node;
  return std::ssize(local_members(launch, world, node)) == world.size;
}

}  // namespace

std::string encode(const WarmupFacts& facts) {
  return Json{{"addresses", facts.addresses}, {"free_port", facts.free_port},
              {"device", facts.device},       {"visible", facts.visible},
              {"name", facts.private_name},   {"cache_root", facts.cache_root},
              {"found", facts.found}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

WarmupFacts decode_warmup_facts(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    WarmupFacts facts;
    facts.addresses = json.at("addresses").get<std::vector<std::string>>();
    facts.free_port = json.at("free_port").get<int>();
    facts.device = json.at("device").get<std::string>();
    facts.visible = json.at("visible").get<std::string>();
    facts.private_name = json.at("name").get<std::string>();
    facts.cache_root = json.at("cache_root").get<std::string>();
    facts.found = json.at("found").get<bool>();
    return facts;
  } catch (const Json::exception& error) {
    throw Error(Errc::kInternal,
                fmt::format("a rank sent no facts for the warm-up: {}", error.what()));
  }
}

int first_of_node(const Launch& launch, int global) {
  return global - place_of(launch, global).local;
}

WarmupPlan plan_warmup(const cli::WarmupOptions& options, const Launch& launch,
                       const std::vector<WarmupFacts>& ranks) {
  const World world = world_of(options.scope, launch);
  const int self = launch.coords.global;
  const bool by_rank = options.scope == cli::WarmupScope::kRank;
  const int chooser = by_rank ? self : world.first;
  const WarmupFacts& master = ranks.at(static_cast<std::size_t>(world.first));

  WarmupPlan plan;
  plan.needed = options.always || !std::ranges::all_of(ranks, [&](const WarmupFacts& facts) {
                  const auto rank = static_cast<int>(&facts - ranks.data());
                  return ranks.at(static_cast<std::size_t>(first_of_node(launch, rank))).found;
                });
  plan.runs_here = plan.needed && self == chooser;
  plan.private_name = ranks.at(static_cast<std::size_t>(chooser)).private_name;

  const std::vector<int> local = local_members(launch, world, launch.place.node);
  plan.served = by_rank ? std::vector<int>{self} : local;
  for (const int rank : plan.served) {
    plan.devices.push_back(ranks.at(static_cast<std::size_t>(rank)).device);
  }
  if (!launch.cuda) {
    // A client counts the daemons that it finds there from 0.
    const auto index = std::ranges::find(plan.served, self) - plan.served.begin();
    plan.private_device = fmt::format("host:{}", index);
  }
  hook::HookPlace& place = plan.place;
  place.scope = options.scope;
  place.rank = by_rank ? self : 0;
  place.world = world.size;
  place.local_rank = by_rank ? launch.place.local : 0;
  place.local_world = static_cast<int>(local.size());
  place.master_port = master.free_port;
  place.master_addr = on_one_node(launch, world) || master.addresses.empty()
                          ? "127.0.0.1"
                          : master.addresses.front();
  place.visible_devices = visible_devices(ranks, plan.served);
  place.device = launch.cuda ? launch.device.device : plan.private_device;
  place.job = launch.job;
  place.coords = launch.coords;
  place.sizes = launch.sizes;
  return plan;
}

}  // namespace preload::run
