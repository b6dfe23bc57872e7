// SPDX-License-Identifier: Apache-2.0
#include "run/serve.hpp"

#include "run/rank_job.hpp"
#include "run/rank_start.hpp"

namespace preload::run {

int serve(const cli::ServeOptions& options, const Launcher& launcher,
          const warmup::Backend& backend) {
  return start_rank(
      options, launcher,
      [&](const Launch& launch, Group& group, RankControl& control, Supervision& supervision) {
        return RankJob(options, launcher, launch, group, control, supervision, backend).run();
      });
}

}  // namespace preload::run
