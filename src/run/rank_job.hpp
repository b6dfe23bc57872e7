// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/serve_options.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi_session.hpp"
#include "load/loader.hpp"
#include "run/launch.hpp"
#include "run/rank_control.hpp"
#include "run/rank_plan.hpp"
#include "run/state_keeper.hpp"
#include "run/supervision.hpp"
#include "serve/residency.hpp"

namespace preload::run {

// One rank's life under supervision: lock, plan, load, serve, and the way it ends. Whatever ends it
// is told to the other ranks first, left as a tombstone for clients, and decided by whichever rank
// failed first.
class RankJob {
 public:
  RankJob(const cli::ServeOptions& options, const Launcher& launcher, const Launch& launch,
          Group& group, RankControl& control, Supervision& supervision);
  int run();  // the exit status; throws the Error that this rank is the one to log

 private:
  ServeEnd work();
  void take_place();  // directory, lock, state file
  Residency load_shard(std::unique_ptr<SlabMemory>& memory);
  void let_go(SlabMemory& memory);        // of MPI, and of CUDA where handles live without it
  ServeEnd serve(Residency residency, std::unique_ptr<SlabMemory> memory);
  void announce() const;

  int conclude(const ServeEnd& end);
  JobFailure report(Errc code, const std::string& text);
  void leave_tombstone(const JobFailure& failure, std::string_view code);
  void let_launcher_see(const JobFailure& failure) const;

  const cli::ServeOptions& options_;
  const Launcher& launcher_;
  const Launch& launch_;
  Group& group_;
  RankControl& control_;
  Supervision& supervision_;
  const Endpoint endpoint_;
  const std::chrono::steady_clock::time_point start_;
  HandleKind kind_;
  std::uint64_t bytes_ = 0;
  LoadProgress progress_;
  std::optional<SocketDir> directory_;
  Fd lock_;
  std::optional<StateKeeper> keeper_;
};

}  // namespace preload::run
