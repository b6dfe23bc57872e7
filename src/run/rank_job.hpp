// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/serve_options.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi_session.hpp"
#include "load/loader.hpp"
#include "run/job_front.hpp"
#include "run/launch.hpp"
#include "run/rank_control.hpp"
#include "run/rank_plan.hpp"
#include "run/role_daemon.hpp"
#include "run/state_keeper.hpp"
#include "run/supervision.hpp"

namespace preload::run {

// One rank's life under supervision: locks, plans, loads, serves every role that the job has, and
// the way it ends. Whatever ends it, in whichever role, is told to the other ranks first, left as a
// tombstone for clients, and decided by whichever rank failed first.
class RankJob {
 public:
  RankJob(const cli::ServeOptions& options, const Launcher& launcher, const Launch& launch,
          Group& group, RankControl& control, Supervision& supervision);
  int run();  // the exit status; throws the Error that this rank is the one to log

 private:
  ServeEnd work();
  void take_place();  // directory, locks, state files
  void plan();
  void drop(RoleDaemon& daemon);  // a draft that cannot be held
  void adopt();                   // what the keeper has, instead of loading it
  void allocate();
  void load(RoleDaemon& daemon);
  void let_go();  // of MPI, and of CUDA where handles live without it
  void measure_overhead();
  ServeEnd serve();
  ServeEnd serve(RoleDaemon& daemon);    // until its server ends
  std::uint64_t bytes() const noexcept;  // of all roles
  int local_daemons() const noexcept;
  void admitted(RoleDaemon& daemon);

  int conclude(const ServeEnd& end);
  void end_with(const JobFailure& verdict);
  void await_leases();
  void close_servers();
  void leave_place();
  JobFailure verdict_on(const ServeEnd& end);
  JobFailure own_failure(int status, const std::string& text) const;
  void report(Errc code, const std::string& text, std::optional<int> of_rank = std::nullopt);
  void leave_tombstone(const JobFailure& failure, std::string_view code);
  void let_launcher_see(const JobFailure& failure) const;

  const cli::ServeOptions& options_;
  const Launcher& launcher_;
  const Launch& launch_;
  Group& group_;
  RankControl& control_;
  Supervision& supervision_;
  HandleKind kind_;
  std::optional<SocketDir> directory_;
  std::list<RoleDaemon> daemons_;
  std::atomic<std::size_t> roles_served_ = 0, roles_to_admit_ = 0;
  JobFront front_;
  std::optional<StateKeeper> keeper_;
};

}  // namespace preload::run
