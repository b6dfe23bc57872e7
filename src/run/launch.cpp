// SPDX-License-Identifier: Apache-2.0
#include "run/launch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "comm/job_message.hpp"
#include "doctor/start_checks.hpp"
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

// What is in the way becomes the rank's error, with what to do; what is not is worth a warning from
// one rank a node.
void check_machine(const cli::ServeOptions& options, const Launcher& launcher) {
  const bool cuda = built_with_cuda() && options.cuda.value_or(true);
  std::string refused;
  Errc code = Errc::kUsage;
  for (const doctor::Check& check : doctor::start_checks(cuda, launcher.size != 1)) {
    const std::string text = fmt::format("{}: {}: {}", check.name, check.text, check.remedy);
    if (check.grade == doctor::Grade::kWarn && launcher.local_rank.value_or(0) == 0) {
      log::warn(text);
    }
    if (check.grade != doctor::Grade::kFail) continue;
    if (refused.empty()) code = check.code;
    refused += fmt::format("{}{} (`preload doctor` shows more)", refused.empty() ? "" : "\n", text);
  }
  if (!refused.empty()) throw Error(code, refused);
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
  const auto failed = attempt([&] {
    check_machine(options, launcher);
    mine = own_facts(options, launcher);
  });
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
