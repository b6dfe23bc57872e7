// SPDX-License-Identifier: Apache-2.0
#include "hook/environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>

namespace preload::hook {
namespace {

// Of launchers; then what would let a hook speak to the service manager, or
// to the launcher's script, in the job's name.
constexpr auto kRemovedPrefixes = std::to_array<std::string_view>(
    {"OMPI_", "PMIX_", "PMI_", "PMI2_", "PRTE_", "ORTE_", "SLURM_", "SLURMD_", "HYDRA_", "HYDI_",
     "MPI_LOCAL", "MPIR_", "FLUX_", "PALS_", "PRELOAD_WARMUP_"});
constexpr auto kRemoved =
    std::to_array<std::string_view>({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS",
                                     "LISTEN_PID", "PRELOAD_LAUNCH_ID"});

std::string_view name_of(std::string_view entry) noexcept {
  return entry.substr(0, entry.find('='));
}

bool is_removed(std::string_view name) {
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  return std::ranges::any_of(kRemovedPrefixes, begins) ||
         std::ranges::find(kRemoved, name) != kRemoved.end();
}

}  // namespace

std::string value_of(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (name_of(entry) == name && entry.size() > name.size()) return entry.substr(name.size() + 1);
  }
  return {};
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

std::vector<std::string> hook_environment(const std::vector<std::string>& inherited,
                                          const HookPlace& place, const std::string& cache_root,
                                          const std::vector<EngineCache>& caches) {
  std::map<std::string, std::string> set{
      {"RANK", std::to_string(place.rank)},
      {"WORLD_SIZE", std::to_string(place.world)},
      {"LOCAL_RANK", std::to_string(place.local_rank)},
      {"LOCAL_WORLD_SIZE", std::to_string(place.local_world)},
      {"MASTER_ADDR", place.master_addr},
      {"MASTER_PORT", std::to_string(place.master_port)},
      {"PRELOAD_SOCKET_DIR", place.socket_dir},
      {"PRELOAD_WARMUP_SCOPE", std::string(cli::scope_name(place.scope))},
      {"PRELOAD_WARMUP_JOB", place.job},
      {"PRELOAD_WARMUP_SLOT", place.slot},
      {"PRELOAD_WARMUP_DEVICE", place.device},
      {"PRELOAD_WARMUP_GLOBAL_RANK", std::to_string(place.coords.global)},
      {"PRELOAD_WARMUP_DP_RANK", std::to_string(place.coords.dp)},
      {"PRELOAD_WARMUP_PP_RANK", std::to_string(place.coords.pp)},
      {"PRELOAD_WARMUP_TP_RANK", std::to_string(place.coords.tp)},
      {"PRELOAD_WARMUP_DP_SIZE", std::to_string(place.sizes.dp)},
      {"PRELOAD_WARMUP_PP_SIZE", std::to_string(place.sizes.pp)},
      {"PRELOAD_WARMUP_TP_SIZE", std::to_string(place.sizes.tp)},
      {"PRELOAD_WARMUP_ENGINE", place.engine_json},
  };
  if (!place.visible_devices.empty()) set["CUDA_VISIBLE_DEVICES"] = place.visible_devices;
  if (!cache_root.empty()) set["PRELOAD_WARMUP_CACHE_DIR"] = caches_folder(cache_root);
  for (const EngineCache& cache : caches) set[cache.variable] = cache.folder;
  set.insert(place.more.begin(), place.more.end());

  std::vector<std::string> out;
  for (const std::string& entry : inherited) {
    const std::string name(name_of(entry));
    if (!is_removed(name) && !set.contains(name)) out.push_back(entry);
  }
  for (const auto& [name, value] : set) out.push_back(name + "=" + value);
  return out;
}

}  // namespace preload::hook
