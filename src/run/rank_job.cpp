// SPDX-License-Identifier: Apache-2.0
#include "run/rank_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "cli/draft_options.hpp"
#include "load/hash_files.hpp"
#include "load/run_threads.hpp"
#include "memory/device.hpp"
#include "run/adoption.hpp"
#include "run/agreement.hpp"
#include "run/cpu_binding.hpp"
#include "run/failure_report.hpp"
#include "run/fill.hpp"
#include "run/host_share.hpp"
#include "run/residency_build.hpp"
#include "run/shared_receipt.hpp"
#include "run/source_audit.hpp"
#include "run/succession.hpp"

namespace preload::run {
namespace {

// A launcher notices a killed rank on its own and then has its status: the others wait this long
// before their own, poorer one could count first.
constexpr auto kLauncherNotices = std::chrono::seconds(1);
constexpr std::chrono::hours kSlowestRank{24};

constexpr int kKeeperTimeoutMs = 1000;

HandleKind handle_kind(const cli::ServeOptions& options, const Launch& launch) {
  return launch.cuda ? options.export_kind : HandleKind::kHost;
}

// What ends the rank ends every role; these end one, and the last one's the rank.
bool ends_one_role(const ServeEnd& end) noexcept {
  return end.cause == ServeEnd::Cause::kStopRequested || end.cause == ServeEnd::Cause::kHandedOver;
}

// A failure of another rank comes with its exit status alone.
std::string_view code_of_status(int status) noexcept {
  for (Errc code : {Errc::kUsage, Errc::kCheckpoint, Errc::kDevice, Errc::kLauncher, Errc::kBusy,
                    Errc::kUnavailable}) {
    if (exit_status(code) == status) return wire_code(code);
  }
  return wire_code(Errc::kUnexpectedEnd);
}

}  // namespace

RankJob::RankJob(const cli::ServeOptions& options, const Launcher& launcher, const Launch& launch,
                 Group& group, RankControl& control, Supervision& supervision)
    : options_(options),
      launcher_(launcher),
      launch_(launch),
      group_(group),
      control_(control),
      supervision_(supervision),
      kind_(handle_kind(options, launch)),
      front_(options, launch, control) {}

int RankJob::run() {
  try {
    return conclude(work());
  } catch (const Cancelled& cancelled) {
    return conclude(control_.decided().value_or(
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

ServeEnd RankJob::work() {
  take_place();
  plan();
  adopt();
  make_room(group_, options_, launch_, kind_, daemons_, control_.cancel());
  allocate();
  for (RoleDaemon& daemon : daemons_) {
    if (!daemon.adopted) load(daemon);
  }
  for (RoleDaemon& daemon : daemons_) {
    if (daemon.is_here()) daemon.residency->slabs = daemon.memory->export_handles();
  }
  let_go();
  measure_overhead();
  // What nobody of this rank serves has done its part.
  daemons_.remove_if([](const RoleDaemon& daemon) { return !daemon.is_here(); });
  if (kind_ != HandleKind::kCudaIpc) {
    for (RoleDaemon& daemon : daemons_) daemon.memory.reset();
  }
  control_.cancel().check();
  return serve();
}

void RankJob::take_place() {
  directory_.emplace(SocketDir::open(options_.socket_dir, true));
  if (options_.keeper == KeeperUse::kRequire)
    static_cast<void>(connect_to_keeper(*directory_, kKeeperTimeoutMs, options_.allow_uids));
  std::vector<StateKeeper::Kept> kept;
  for (RankRole& role : rank_roles(options_, launch_)) {
    RoleDaemon& daemon = daemons_.emplace_back(std::move(role));
    if (!daemon.is_here()) continue;
    take_place_of(*directory_, options_, daemon);
    StateFile state;
    state.job = launch_.job;
    state.global_rank = launch_.coords.global;
    state.local_size = daemon.role.local_daemons;
    state.model = daemon.role.model.model;
    kept.push_back(
        {daemon.role.endpoint, std::move(state), &daemon.progress, daemon.predecessor.has_value()});
  }
  keeper_.emplace(*directory_, kept, launch_.place.node, supervision_,
                  [this](const std::string& text) { front_.progress(text); });
  front_.open(*directory_, local_daemons());
}

int RankJob::local_daemons() const noexcept {
  int sum = 0;
  for (const RoleDaemon& daemon : daemons_) sum += daemon.role.local_daemons;
  return sum;
}

void RankJob::plan() {
  const Cancel& cancel = control_.cancel();
  if (launch_.coords.global == 0) {
    if (const auto reason = cli::why_not_held(options_.model)) log::warn(*reason);
  }
  const RankPlan* target = nullptr;
  for (auto daemon = daemons_.begin(); daemon != daemons_.end();) {
    auto plan = plan_rank(group_, options_, launch_, daemon->role, target, cancel);
    if (!plan) {
      drop(*daemon);
      daemon = daemons_.erase(daemon);
      continue;
    }
    daemon->plan = std::move(*plan);
    daemon->bytes = daemon->plan.load.slabs.total_bytes();
    daemon->progress.total_bytes = daemon->plan.reads.read_bytes;
    if (daemon->role.role == Role::kTarget) target = &daemon->plan;
    ++daemon;
  }
  front_.expect(local_daemons());
  group_.barrier({"every rank's plan", cancel});
}

void RankJob::drop(RoleDaemon& daemon) {
  if (daemon.is_here()) keeper_->stopped(daemon.role.endpoint);
}

void RankJob::adopt() {
  for (RoleDaemon& daemon : daemons_) {
    find_offer(*directory_, options_, daemon);
    daemon.adopted =
        run::adopt(group_, options_, launch_, kind_, *directory_, daemon, control_.cancel());
  }
}

void RankJob::allocate() {
  const CpuBinding binding(launch_.device.device);
  log::info(binding.account());
  if (kind_ == HandleKind::kHost) {
    std::uint64_t needed = 0;
    int here = 0;
    for (const RoleDaemon& daemon : daemons_) {
      if (daemon.adopted) continue;
      needed += daemon.bytes;
      here += daemon.is_here() ? 1 : 0;
    }
    require_host_memory(group_, launch_, needed, here, control_.cancel());
  }
  for (RoleDaemon& daemon : daemons_) {
    if (!daemon.adopted)
      daemon.memory = allocate_slabs(kind_, daemon.plan.load.slabs.slabs, launch_.device.ordinal);
  }
}

void RankJob::load(RoleDaemon& daemon) {
  const Cancel& cancel = control_.cancel();
  RankPlan& plan = daemon.plan;
  const CpuBinding binding(launch_.device.device);
  const LoadResult result =
      fill(group_, options_, launch_, plan, *daemon.memory, daemon.progress, cancel);
  const double rate = result.seconds > 0 ? static_cast<double>(result.bytes_read) /
                                               static_cast<double>(kGiB) / result.seconds
                                         : 0;
  log::info(fmt::format("{}: this rank read {} in {:.2f} s ({:.2f} GiB/s)",
                        role_name(daemon.role.role), format_bytes(result.bytes_read),
                        result.seconds, rate));

  const std::vector<SourceHash> sources = audit_sources(
      group_, plan, result, options_.threads,
      {std::nullopt, reads_in_flight(options_, launch_), &daemon.progress.reads}, cancel);
  if (launch_.coords.global == 0) remember_hashes(plan.checkpoint, sources);
  std::string receipt = share_receipt(group_, plan, cancel);
  if (daemon.is_here()) {
    daemon.residency = build_residency(launch_, daemon.role, plan, result,
                                       checkpoint_id(plan.checkpoint, sources), std::move(receipt));
    daemon.residency->generation = daemon.generation;
  }
  plan = {};  // serving takes none of it
}

std::uint64_t RankJob::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const RoleDaemon& daemon : daemons_) sum += daemon.bytes;
  return sum;
}

// What is exported lives on by itself, so that serving takes no MPI and no CUDA context.
void RankJob::let_go() {
  group_.finalize({"every rank to finish loading", control_.cancel(), kSlowestRank});
  if (kind_ == HandleKind::kCudaIpc) return;
  for (RoleDaemon& daemon : daemons_) {
    if (daemon.memory) daemon.memory->unmap();
  }
  if (launch_.cuda) give_up_context(launch_.device.ordinal);
}

// Of the process, so it is the target's alone.
void RankJob::measure_overhead() {
  if (kind_ != HandleKind::kVmm && kind_ != HandleKind::kCudaIpc) return;
  for (const Device& device : visible_devices()) {
    if (device.uuid != launch_.device.device) continue;
    const std::uint64_t used = process_used_bytes(device).value_or(0);
    daemons_.front().residency->overhead_bytes = used > bytes() ? used - bytes() : 0;
  }
}

// One server a role, each on a thread of its own: they share nothing but the process.
ServeEnd RankJob::serve() {
  std::vector<RoleDaemon*> daemons;
  std::vector<Server*> servers;
  for (RoleDaemon& daemon : daemons_) {
    ServerOptions options;
    options.sessions.allow_uids = options_.allow_uids;
    options.keeper = options_.keeper;
    options.lock = daemon.lock.get();
    options.predecessor = daemon.predecessor ? &*daemon.predecessor : nullptr;
    daemon.server = std::make_unique<Server>(*directory_, std::move(*daemon.residency),
                                             std::move(options), std::move(daemon.inheritance));
    daemon.server->deposit();
    daemon.server->on_admitted([this, &daemon] { admitted(daemon); });
    daemon.server->on_job_stop([this] { supervision_.request_stop(); });
    daemon.server->on_released([&daemon] { daemon.memory.reset(); });
    daemons.push_back(&daemon);
    servers.push_back(daemon.server.get());
  }
  roles_served_ = roles_to_admit_ = daemons.size();
  std::vector<ServeEnd> ends(daemons.size());
  {
    const RankControl::Serving serving(control_, servers);
    front_.watch(daemons.front()->role.endpoint.socket_name());
    supervision_.bound();
    run_threads(static_cast<int>(daemons.size()), [&](int i, const std::atomic<bool>&) {
      const auto role = static_cast<std::size_t>(i);
      try {
        ends[role] = serve(*daemons[role]);
      } catch (const std::exception& error) {
        control_.end({ServeEnd::Cause::kFailure, exit_status(Errc::kInternal), error.what()});
        throw;
      }
    });
  }
  // Who asks is not told of sockets that are being closed on request. After a failure it is told
  // why, for as long as this process lives.
  if (control_.decided().value_or(ends.front()).cause != ServeEnd::Cause::kFailure) {
    front_.close_health();
  }
  for (const ServeEnd& end : ends) {
    if (!ends_one_role(end)) return end;
  }
  return ends.front();
}

ServeEnd RankJob::serve(RoleDaemon& daemon) {
  ServeEnd end = daemon.server->run();
  if (end.cause == ServeEnd::Cause::kHandedOver) keeper_->handed_over(daemon.role.endpoint);
  if (!ends_one_role(end) || --roles_served_ == 0) return end;
  // The other roles go on, and this one's place is free.
  control_.forget(*daemon.server);
  if (end.cause == ServeEnd::Cause::kStopRequested) {
    daemon.server->await_leases(std::chrono::steady_clock::now() + options_.lease_wait);
  }
  daemon.server.reset();
  daemon.memory.reset();
  keeper_->stopped(daemon.role.endpoint);
  daemon.lock.reset();
  return end;
}

// On the role's own loop, once it answers attaches.
void RankJob::admitted(RoleDaemon& daemon) {
  note_holder(daemon.lock);
  daemon.next_lock.reset();
  if (--roles_to_admit_ > 0) return;
  end_left_over(*directory_, options_, daemons_);
  keeper_->ready([this] { front_.ready(kind_, bytes()); });
}

int RankJob::conclude(const ServeEnd& end) {
  control_.end(end);  // from here on ending, too, is bounded
  front_.stopping();
  switch (end.cause) {
    case ServeEnd::Cause::kHandedOver:
    case ServeEnd::Cause::kStopRequested:
    case ServeEnd::Cause::kJobStop:
      supervision_.bye();
      // A successor has the leases.
      if (end.cause != ServeEnd::Cause::kHandedOver) await_leases();
      close_servers();
      if (keeper_) keeper_->stopped();
      return end.status;
    case ServeEnd::Cause::kSignal:
    case ServeEnd::Cause::kFailure:
      break;
  }
  const JobFailure verdict = verdict_on(end);
  // What rank 0 cannot log any more, the next one does.
  if (verdict.lost && verdict.rank == 0 && launch_.coords.global == 1) {
    report_failure(verdict, launch_.tasks);
  }
  end_with(verdict);
  return verdict.status;
}

// The job's failure where another rank's is known; else what ended this rank, told to the others:
// to them a rank that goes without a word is lost.
JobFailure RankJob::verdict_on(const ServeEnd& end) {
  if (const std::optional<JobFailure> known = control_.failure()) return *known;
  const std::optional<JobFailure> told = supervision_.fail(end.status, end.text);
  if (told) return *told;
  if (end.cause == ServeEnd::Cause::kSignal) {
    log::warn(end.text);
  } else {
    log::error(end.text);
  }
  return own_failure(end.status, end.text);
}

void RankJob::end_with(const JobFailure& verdict) {
  const bool orderly = is_signal_status(verdict.status) && !verdict.lost;
  if (orderly) await_leases();
  close_servers();
  leave_tombstone(verdict, code_of_status(verdict.status));
  if (orderly) {
    leave_place();
    supervision_.await_others(options_.lease_wait);
  }
  let_launcher_see(verdict);
}

// Clients map what they lease for as long as they like; but memory that is exported by cuda-ipc
// goes with this process, and other memory is free for the next job only when they have let go.
void RankJob::await_leases() {
  control_.allow(options_.lease_wait);
  const auto deadline = std::chrono::steady_clock::now() + options_.lease_wait;
  for (RoleDaemon& daemon : daemons_) {
    if (daemon.server) daemon.server->await_leases(deadline);
  }
}

// For whoever comes next, while this process waits for the others.
void RankJob::leave_place() {
  for (RoleDaemon& daemon : daemons_) {
    daemon.memory.reset();
    daemon.lock.reset();
  }
}

void RankJob::close_servers() {
  for (RoleDaemon& daemon : daemons_) daemon.server.reset();
}

JobFailure RankJob::own_failure(int status, const std::string& text) const {
  return {launch_.coords.global, status, text};
}

// Throws Cancelled with the job's failure, which may be another rank's, when rank 0 has logged it;
// returns when it is left to this rank.
void RankJob::report(Errc code, const std::string& text, std::optional<int> of_rank) {
  const int status = exit_status(code);
  const std::optional<JobFailure> verdict = supervision_.fail(status, text, of_rank);
  if (!verdict) {
    leave_tombstone(own_failure(status, text), wire_code(code));
    return;
  }
  const bool ours = verdict->rank == of_rank.value_or(launch_.coords.global);
  leave_tombstone(*verdict, ours ? wire_code(code) : code_of_status(verdict->status));
  let_launcher_see(*verdict);
  throw Cancelled({verdict->status, describe(*verdict)});
}

void RankJob::leave_tombstone(const JobFailure& failure, std::string_view code) {
  if (!keeper_) return;
  const bool alone = launch_.sizes.world() == 1;
  keeper_->failed(code, alone ? failure.text : describe(failure), failure.status);
}

void RankJob::let_launcher_see(const JobFailure& failure) const {
  if (failure.lost && launcher_.kind != Launcher::Kind::kNone) {
    std::this_thread::sleep_for(kLauncherNotices);
  }
}

}  // namespace preload::run
