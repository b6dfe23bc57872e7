// SPDX-License-Identifier: Apache-2.0
#include "run/device_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/counted.hpp"
#include "base/error.hpp"

namespace preload::run {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFlags =
    "let each rank see all GPUs of its node, or give each its own: `srun --gpus-per-task=1`, or "
    "`mpirun` with CUDA_VISIBLE_DEVICES set from OMPI_COMM_WORLD_LOCAL_RANK";

bool all_see_the_same(const std::vector<ProcessFacts>& processes,
                      const std::vector<RankPlace>& places, int node) {
  const std::vector<std::string>* first = nullptr;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].node != node) continue;
    if (first == nullptr) first = &processes[i].gpus;
    if (*first != processes[i].gpus) return false;
  }
  return true;
}

DeviceChoice choose_gpu(const std::vector<ProcessFacts>& processes,
                        const std::vector<RankPlace>& places, std::size_t i) {
  const RankPlace& place = places[i];
  const std::vector<std::string>& gpus = processes[i].gpus;
  const bool shared = all_see_the_same(processes, places, place.node);
  const auto ordinal = static_cast<std::size_t>(shared ? place.local : 0);
  if (ordinal >= gpus.size()) {
    throw Error(
        Errc::kLauncher,
        fmt::format("{} started on {}, but rank {} (local rank {}) sees {}: "
                    "start at most one rank per GPU (`srun --ntasks-per-node`, `mpirun "
                    "--map-by ppr:{}:node`), or {}",
                    counted(place.local_size, "rank", "was", "were"), processes[i].host,
                    place.global, place.local, counted(gpus.size(), "GPU"), gpus.size(), kFlags));
  }
  return {gpus[ordinal], static_cast<int>(ordinal)};
}

}  // namespace

std::string encode(const ProcessFacts& facts) {
  return Json{{"host", facts.host},
              {"boot_id", facts.boot_id},
              {"local_hint", facts.local_hint},
              {"gpus", facts.gpus},
              {"no_gpus", facts.no_gpus}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

ProcessFacts decode_facts(const std::string& text) {
  const Json json = Json::parse(text);
  return {json.at("host"), json.at("boot_id"), json.at("local_hint"), json.at("gpus"),
          json.at("no_gpus")};
}

bool choose_cuda(std::optional<bool> asked, const std::vector<ProcessFacts>& processes,
                 const std::vector<RankPlace>& places) {
  if (asked && !*asked) return false;
  std::map<int, std::string> without;  // by rank
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (!processes[i].gpus.empty()) continue;
    without[places[i].global] = fmt::format("rank {} on {} ({})", places[i].global,
                                            processes[i].host, processes[i].no_gpus);
  }
  if (without.empty()) return true;
  if (!asked && without.size() == processes.size()) return false;
  std::vector<std::string> named;
  for (const auto& [rank, text] : without) named.push_back(text);
  throw Error(
      Errc::kDevice,
      fmt::format("no GPU for {}: request GPUs from the launcher (`srun --gpus-per-task=1`), "
                  "or serve from host memory with --device host",
                  fmt::join(named, ", ")));
}

std::vector<DeviceChoice> choose_devices(bool cuda, const std::vector<ProcessFacts>& processes,
                                         const std::vector<RankPlace>& places) {
  std::vector<DeviceChoice> choices(places.size());
  std::map<std::pair<int, std::string>, int> taken;  // (node, device) → rank
  for (std::size_t i = 0; i < places.size(); ++i) {
    choices[i] = cuda ? choose_gpu(processes, places, i)
                      : DeviceChoice{fmt::format("host:{}", places[i].local), 0};
    const auto [other, free] =
        taken.try_emplace({places[i].node, choices[i].device}, places[i].global);
    if (free) continue;
    throw Error(Errc::kLauncher, fmt::format("ranks {} and {} on {} would both use {}: {}",
                                             std::min(other->second, places[i].global),
                                             std::max(other->second, places[i].global),
                                             processes[i].host, choices[i].device, kFlags));
  }
  return choices;
}

}  // namespace preload::run
