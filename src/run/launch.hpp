// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "cli/serve_options.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi_session.hpp"
#include "plan/topology.hpp"
#include "run/device_choice.hpp"

namespace preload::run {

// Where this rank stands in the job and what it may use: the same decision on every rank, from
// facts that all of them gathered.
struct Launch {
  std::string job;
  RankPlace place;
  std::vector<RankPlace> places;  // of all ranks, by global rank
  std::vector<int> tasks;         // what the launcher calls them, by global rank
  ParallelSizes sizes;
  RankCoords coords;
  bool cuda = false;
  DeviceChoice device;
};

// Collective. Renumbers `group` so that a rank's number in it is its global rank. Throws on every
// rank when the world does not fit the sizes, a GPU is missing or two ranks meet on one.
Launch check_launch(std::unique_ptr<Group>& group, const cli::ServeOptions& options,
                    const Launcher& launcher, const Cancel& cancel);

}  // namespace preload::run
