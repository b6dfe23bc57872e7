// SPDX-License-Identifier: Apache-2.0
#include "run/launch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "comm/job_message.hpp"
#include "memory/device.hpp"
#include "run/agreement.hpp"
#include "serve/socket_dir.hpp"

namespace preload::run {
namespace {

ProcessFacts own_facts(const cli::ServeOptions& options, const Launcher& launcher) {
  ProcessFacts facts;
  facts.host = host_name();
  facts.boot_id = current_boot_id();
  facts.local_hint = launcher.local_rank.value_or(-1);
  if (!options.cuda.value_or(true)) return facts;
  for (const Device& device : visible_devices()) facts.gpus.push_back(device.uuid);
  if (facts.gpus.empty()) facts.no_gpus = no_devices_reason();
  return facts;
}

std::vector<RankPlace> place(const std::vector<ProcessFacts>& processes) {
  std::vector<ProcessPlace> places;
  for (const ProcessFacts& facts : processes) {
    places.push_back({fmt::format("{} {}", facts.boot_id, facts.host), facts.local_hint});
  }
  return place_ranks(places);
}

}  // namespace

Launch check_launch(std::unique_ptr<Group>& group, const cli::ServeOptions& options,
                    const Launcher& launcher, const Cancel& cancel) {
  ProcessFacts mine;
  const auto failed = attempt([&] { mine = own_facts(options, launcher); });
  agree(*group, failed, {"every rank to look at its devices", cancel});
  std::vector<ProcessFacts> processes;
  for (const std::string& text : group->all_gather(encode(mine), {"every rank's host", cancel})) {
    processes.push_back(decode_facts(text));
  }
  const auto self = static_cast<std::size_t>(group->rank());
  const std::vector<RankPlace> places = place(processes);
  std::vector<int> global_ranks;
  for (const RankPlace& each : places) global_ranks.push_back(each.global);
  group = order_ranks(std::move(group), std::move(global_ranks));

  Launch launch;
  launch.place = places[self];
  launch.places = places;
  std::ranges::sort(launch.places, {}, &RankPlace::global);
  launch.tasks.resize(places.size());
  for (std::size_t task = 0; task < places.size(); ++task) {
    launch.tasks[static_cast<std::size_t>(places[task].global)] = static_cast<int>(task);
  }
  const auto refused = attempt([&] {
    const cli::ModelOptions& model = options.model;
    launch.sizes = cli::job_sizes(model, group->size());
    launch.coords = coords_of(launch.place.global, launch.sizes);
    launch.cuda = choose_cuda(options.cuda, processes, places);
    launch.device = choose_devices(launch.cuda, processes, places)[self];
  });
  if (refused) throw AgreedError(*refused, std::nullopt);
  const std::string job = launcher.job_id.empty()
                              ? fmt::format("{}-{}-{}", host_name(), getpid(), random_hex(4))
                              : launcher.job_id;
  launch.job = group->broadcast(job, 0, {"the job's name", cancel});
  return launch;
}

}  // namespace preload::run
