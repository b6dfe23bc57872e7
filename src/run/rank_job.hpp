// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/serve_options.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi_session.hpp"
#include "run/launch.hpp"
#include "run/rank_context.hpp"
#include "run/rank_control.hpp"
#include "run/rank_ending.hpp"
#include "run/rank_serving.hpp"
#include "run/supervision.hpp"
#include "warmup/backend.hpp"

namespace preload::run {

// One rank's life under supervision: the phases in their order, and the way it ends. Whatever ends
// it, in whichever role and phase, goes through RankEnding.
class RankJob {
 public:
  RankJob(const cli::ServeOptions& options, const Launcher& launcher, const Launch& launch,
          Group& group, RankControl& control, Supervision& supervision,
          const warmup::Backend& backend);
  int run();  // the exit status; throws the Error that this rank is the one to log

 private:
  ServeEnd work();

  const warmup::Backend& backend_;
  RankContext rank_;
  RankServing serving_;
  RankEnding ending_;
};

}  // namespace preload::run
