// SPDX-License-Identifier: Apache-2.0
#include "run/rank_place.hpp"

#include <string>
#include <utility>
#include <vector>

#include "run/private_serving.hpp"
#include "run/rank_role.hpp"
#include "run/succession.hpp"
#include "serve/keeper_link.hpp"

namespace preload::run {
namespace {

constexpr int kKeeperTimeoutMs = 1000;

}  // namespace

void take_place(RankContext& rank) {
  const cli::ServeOptions& options = rank.options;
  rank.directory.emplace(SocketDir::open(options.socket_dir, true));
  remove_stale_private(*rank.directory);  // of jobs that were killed in their warm-up
  if (options.keeper == KeeperUse::kRequire)
    static_cast<void>(connect_to_keeper(*rank.directory, kKeeperTimeoutMs));
  std::vector<StateKeeper::Kept> kept;
  for (RankRole& role : rank_roles(options, rank.launch)) {
    RoleDaemon& daemon = rank.daemons.emplace_back(std::move(role));
    if (!daemon.is_here()) continue;
    take_place_of(*rank.directory, options, daemon);
    StateFile state;
    state.job = rank.launch.job;
    state.global_rank = rank.launch.coords.global;
    state.local_size = daemon.role.local_daemons;
    state.model = daemon.role.model.model;
    kept.push_back(
        {daemon.role.endpoint, std::move(state), &daemon.progress, daemon.predecessor.has_value()});
  }
  rank.keeper.emplace(*rank.directory, kept, rank.launch.place.node, rank.supervision,
                      [&rank](const std::string& text) { rank.front.progress(text); });
  rank.front.open(*rank.directory, rank.local_daemons());
}

}  // namespace preload::run
