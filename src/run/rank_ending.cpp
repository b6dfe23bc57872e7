// SPDX-License-Identifier: Apache-2.0
#include "run/rank_ending.hpp"

#include <chrono>
#include <exception>
#include <new>
#include <thread>

#include "base/log.hpp"
#include "comm/mpi_leave.hpp"
#include "run/agreement.hpp"
#include "run/failure_report.hpp"

namespace preload::run {
namespace {

// A launcher notices a killed rank on its own and then has its status: the others wait this long
// before their own, poorer one could count first.
constexpr auto kLauncherNotices = std::chrono::seconds(1);
// A stop of the whole job reaches a rank that lives within this; a rank that hangs is lost by then.
constexpr auto kGoodbyes = std::chrono::seconds(9);

// A failure of another rank comes with its exit status alone.
std::string_view code_of_status(int status) noexcept {
  for (Errc code : {Errc::kUsage, Errc::kCheckpoint, Errc::kDevice, Errc::kLauncher, Errc::kBusy,
                    Errc::kUnavailable}) {
    if (exit_status(code) == status) return wire_code(code);
  }
  return wire_code(Errc::kUnexpectedEnd);
}

}  // namespace

int RankEnding::run(const std::function<ServeEnd()>& work) {
  try {
    return conclude(work());
  } catch (const Cancelled& cancelled) {
    return conclude(rank_.control.decided().value_or(
        ServeEnd{ServeEnd::Cause::kFailure, cancelled.status(), cancelled.what()}));
  } catch (const std::bad_alloc&) {
    const Error error(Errc::kMemory, "out of host memory");
    report(error.code(), error.what());
    throw error;
  } catch (const AgreedError& error) {
    report(error.code(), error.what(), error.rank());
    throw Error(error);
  } catch (const Error& error) {
    report(error.code(), error.what());
    throw;
  } catch (const std::exception& error) {
    report(Errc::kInternal, error.what());
    throw;
  }
}

int RankEnding::conclude(const ServeEnd& end) {
  rank_.control.end(end);  // from here on ending, too, is bounded
  rank_.front.stopping();
  switch (end.cause) {
    case ServeEnd::Cause::kHandedOver:
    case ServeEnd::Cause::kStopRequested:
    case ServeEnd::Cause::kJobStop:
      rank_.supervision.bye();
      // A successor has the leases.
      if (end.cause != ServeEnd::Cause::kHandedOver) await_leases();
      close_servers();
      if (rank_.keeper) rank_.keeper->stopped();
      // The launcher ends a rank that hangs only when another fails: nobody else would.
      if (end.cause == ServeEnd::Cause::kJobStop) {
        if (const auto hangs = rank_.supervision.await_goodbyes(kGoodbyes)) return hangs->status;
        leave_mpi();  // where it was loading
      }
      return end.status;
    case ServeEnd::Cause::kSignal:
    case ServeEnd::Cause::kFailure:
      break;
  }
  const JobFailure verdict = verdict_on(end);
  // What rank 0 cannot log any more, the next one does.
  if (verdict.lost && verdict.rank == 0 && rank_.launch.coords.global == 1) {
    report_failure(verdict, rank_.launch.tasks);
  }
  end_with(verdict);
  return verdict.status;
}

// The job's failure where another rank's is known; else what ended this rank, told to the others:
// to them a rank that goes without a word is lost.
JobFailure RankEnding::verdict_on(const ServeEnd& end) {
  if (const std::optional<JobFailure> known = rank_.control.failure()) return *known;
  const std::optional<JobFailure> told = rank_.supervision.fail(end.status, end.text);
  if (told) return *told;
  if (end.cause == ServeEnd::Cause::kSignal) {
    log::warn(end.text);
  } else {
    log::error(end.text);
  }
  return own_failure(end.status, end.text);
}

void RankEnding::end_with(const JobFailure& verdict) {
  const bool orderly = is_signal_status(verdict.status) && !verdict.lost;
  if (orderly) await_leases();
  close_servers();
  leave_tombstone(verdict, code_of_status(verdict.status));
  if (orderly) {
    leave_place();
    rank_.supervision.await_others(rank_.options.lease_wait);
  }
  let_launcher_see(verdict);
}

// Clients map what they lease for as long as they like; but memory that is exported by cuda-ipc
// goes with this process, and other memory is free for the next job only when they have let go.
void RankEnding::await_leases() {
  rank_.control.allow(rank_.options.lease_wait);
  const auto deadline = std::chrono::steady_clock::now() + rank_.options.lease_wait;
  for (RoleDaemon& daemon : rank_.daemons) {
    if (daemon.server) daemon.server->await_leases(deadline);
  }
}

// For whoever comes next, while this process waits for the others.
void RankEnding::leave_place() {
  for (RoleDaemon& daemon : rank_.daemons) {
    daemon.memory.reset();
    daemon.lock.reset();
  }
}

void RankEnding::close_servers() {
  for (RoleDaemon& daemon : rank_.daemons) daemon.server.reset();
}

JobFailure RankEnding::own_failure(int status, const std::string& text) const {
  return {rank_.launch.coords.global, status, text};
}

void RankEnding::report(Errc code, const std::string& text, std::optional<int> of_rank) {
  const int status = exit_status(code);
  const std::optional<JobFailure> verdict = rank_.supervision.fail(status, text, of_rank);
  if (!verdict) {
    leave_tombstone(own_failure(status, text), wire_code(code));
    return;
  }
  const bool ours = verdict->rank == of_rank.value_or(rank_.launch.coords.global);
  leave_tombstone(*verdict, ours ? wire_code(code) : code_of_status(verdict->status));
  let_launcher_see(*verdict);
  throw Cancelled({verdict->status, describe(*verdict)});
}

void RankEnding::leave_tombstone(const JobFailure& failure, std::string_view code) {
  if (!rank_.keeper) return;
  const bool alone = rank_.launch.sizes.world() == 1;
  rank_.keeper->failed(code, alone ? failure.text : describe(failure), failure.status);
}

void RankEnding::let_launcher_see(const JobFailure& failure) const {
  if (failure.lost && rank_.launcher.kind != Launcher::Kind::kNone) {
    std::this_thread::sleep_for(kLauncherNotices);
  }
}

}  // namespace preload::run
