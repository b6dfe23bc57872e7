// SPDX-License-Identifier: Apache-2.0
#include "run/rank_start.hpp"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/mpi_session.hpp"
#include "run/agreement.hpp"
#include "run/launch.hpp"
#include "run/launcher_watch.hpp"
#include "run/rank_control.hpp"
#include "run/signals.hpp"
#include "run/supervision.hpp"

namespace preload::run {
namespace {

ServeEnd end_of_signal(int signal) {
  return {ServeEnd::Cause::kSignal, 128 + signal, fmt::format("ended by {}", signal_name(signal))};
}

// The job's supervision, for as long as there is one; for another thread.
class Stoppable {
 public:
  explicit Stoppable(RankControl& control) : control_(control) {}
  void stop() {
    const std::lock_guard lock(mutex_);
    if (supervision_ != nullptr) {
      supervision_->request_stop();
    } else {
      control_.end({ServeEnd::Cause::kJobStop, 0, "a client stopped it"});
    }
  }
  void supervised_by(Supervision* supervision) {
    const std::lock_guard lock(mutex_);
    supervision_ = supervision;
  }

 private:
  RankControl& control_;
  std::mutex mutex_;
  Supervision* supervision_ = nullptr;
};

// Until it is gone, a stop is the job's.
class Supervised {
 public:
  Supervised(Stoppable& stoppable, Supervision& supervision) : stoppable_(stoppable) {
    stoppable_.supervised_by(&supervision);
  }
  ~Supervised() { stoppable_.supervised_by(nullptr); }
  Supervised(const Supervised&) = delete;
  Supervised& operator=(const Supervised&) = delete;

 private:
  Stoppable& stoppable_;
};

}  // namespace

int start_rank(const cli::ServeOptions& options, const Launcher& launcher, const RankBody& job) {
  RankControl control;
  Stoppable stoppable(control);
  const SignalWatch signals([&](int signal) { control.end(end_of_signal(signal)); },
                            [&] { stoppable.stop(); });
  const LauncherWatch watch(launcher, [&] {
    control.end({ServeEnd::Cause::kFailure, exit_status(Errc::kLauncher),
                 "the launcher has ended without ending its ranks: was it killed?"});
  });
  std::unique_ptr<Group> group = make_group(launcher);
  JobEvents events;
  events.ready = [&] { control.ready(); };
  events.failed = [&](const JobFailure& failure) { control.fail(failure); };
  events.stop = [&] {
    control.end({ServeEnd::Cause::kJobStop, 0, "a client stopped the whole job"});
  };
  try {
    const Launch launch = check_launch(group, options, launcher, control.cancel());
    log::set_rank(launch.coords.global, role_name(Role::kTarget));
    Supervision supervision(*group, std::move(events), control.cancel(), launch.tasks);
    const Supervised supervised(stoppable, supervision);
    return job(launch, *group, control, supervision);
  } catch (const AgreedError& error) {
    // A job lets none out: it has a channel to say it by.
    say_and_end(*group, error, control.cancel());
  }
}

}  // namespace preload::run
