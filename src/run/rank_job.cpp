// SPDX-License-Identifier: Apache-2.0
#include "run/rank_job.hpp"

#include "run/rank_load.hpp"
#include "run/rank_place.hpp"
#include "run/rank_release.hpp"
#include "run/rank_tuning.hpp"
#include "run/rank_warmup.hpp"
#include "run/replaced_world.hpp"

namespace preload::run {

RankJob::RankJob(const cli::ServeOptions& options, const Launcher& launcher, const Launch& launch,
                 Group& group, RankControl& control, Supervision& supervision,
                 const warmup::Backend& backend)
    : backend_(backend),
      rank_(options, launcher, launch, group, control, supervision),
      serving_(rank_),
      ending_(rank_) {}

int RankJob::run() {
  return ending_.run([this] { return work(); });
}

ServeEnd RankJob::work() {
  take_place(rank_);
  check_replaced(rank_);
  load_roles(rank_);
  tune_collectives(rank_, backend_);
  RankWarmup warmup(rank_);
  warmup.prepare();
  release_all(rank_);
  warmup.run();
  rank_.cancel().check();
  return serving_.run();
}

}  // namespace preload::run
