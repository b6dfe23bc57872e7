// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "cli/serve_options.hpp"
#include "run/launch.hpp"
#include "serve/socket_dir.hpp"

namespace preload::run {

// One of the models that a job holds: the target, and a draft beside it. Each is a daemon of its
// own to clients; all ranks take part in loading each, also those that hold nothing of it.
struct RankRole {
  Role role = Role::kTarget;
  cli::ModelOptions model;
  ParallelSizes sizes;               // of the ranks that hold it
  std::optional<RankCoords> coords;  // among these; unset: this rank holds nothing of it
  Endpoint endpoint;
  int local_daemons = 1;  // of this role on this node
};

std::vector<RankRole> rank_roles(const cli::ServeOptions& options, const Launch& launch);

// The place of the job's rank `global` among the ranks that hold the role.
std::optional<RankCoords> coords_in_role(Role role, const Launch& launch, int global);

}  // namespace preload::run
