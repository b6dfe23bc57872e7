// SPDX-License-Identifier: Apache-2.0
#include "run/rank_role.hpp"

#include "cli/draft_options.hpp"

namespace preload::run {
namespace {

RankRole make_role(Role role, const cli::ServeOptions& options, const Launch& launch,
                   cli::ModelOptions model, const ParallelSizes& sizes) {
  RankRole out;
  out.role = role;
  out.model = std::move(model);
  out.sizes = sizes;
  out.coords = coords_in_role(role, launch, launch.coords.global);
  if (out.coords && !sizes.expert_parallel) out.coords->ep.reset();
  out.endpoint = {launch.device.device, options.slot, role};
  out.local_daemons = 0;
  const int first = launch.place.global - launch.place.local;
  for (int local = 0; local < launch.place.local_size; ++local) {
    if (coords_in_role(role, launch, first + local)) ++out.local_daemons;
  }
  return out;
}

}  // namespace

std::optional<RankCoords> coords_in_role(Role role, const Launch& launch, int global) {
  const RankCoords coords = coords_of(global, launch.sizes);
  return role == Role::kTarget ? coords : cli::draft_coords(coords, launch.sizes);
}

std::vector<RankRole> rank_roles(const cli::ServeOptions& options, const Launch& launch) {
  std::vector<RankRole> roles{
      make_role(Role::kTarget, options, launch, options.model, launch.sizes)};
  if (auto draft = cli::draft_options(options.model)) {
    const ParallelSizes sizes = cli::draft_sizes(*draft, launch.sizes);
    roles.push_back(make_role(Role::kDraft, options, launch, std::move(*draft), sizes));
  }
  return roles;
}

}  // namespace preload::run
