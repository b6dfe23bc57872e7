// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/warmup_options.hpp"
#include "hook/engine_caches.hpp"
#include "plan/topology.hpp"

namespace preload::hook {

// What one hook is told. With WarmupScope::kRank its world is the job; with kReplica the replica,
// whose first rank it is.
struct HookPlace {
  cli::WarmupScope scope = cli::WarmupScope::kRank;
  int rank = 0, world = 1;
  int local_rank = 0, local_world = 1;
  std::string master_addr;
  int master_port = 0;
  std::string socket_dir;       // the private one
  std::string visible_devices;  // CUDA_VISIBLE_DEVICES; "": as inherited
  std::string device;           // as daemons in socket_dir are named
  std::string job, slot;
  RankCoords coords;
  ParallelSizes sizes;
  std::map<std::string, std::string> more;  // further variables, by name
  std::string engine_json;                  // what an engine is to be started with, by vLLM's names
};

// The environment of a hook, NAME=VALUE: what the rank inherited, without what a launcher and a
// service manager say to the rank itself (a program that finds OMPI_*, PMIX_* or SLURM_* believes
// that it is one of the job's MPI ranks), and with what the place and the caches say.
std::vector<std::string> hook_environment(const std::vector<std::string>& inherited,
                                          const HookPlace& place, const std::string& cache_root,
                                          const std::vector<EngineCache>& caches);

std::vector<std::string> own_environment();  // of this process
// "" when it is not set.
std::string value_of(const std::vector<std::string>& environment, std::string_view name);

}  // namespace preload::hook
