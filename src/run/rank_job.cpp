// SPDX-License-Identifier: Apache-2.0
#include "run/rank_job.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <new>
#include <thread>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "load/hash_files.hpp"
#include "memory/device.hpp"
#include "run/cpu_binding.hpp"
#include "run/fill.hpp"
#include "run/host_share.hpp"
#include "run/residency_build.hpp"
#include "run/source_audit.hpp"

namespace preload::run {
namespace {

// A launcher notices a killed rank on its own and then has its status: the others wait this long
// before their own, poorer one could count first.
constexpr auto kLauncherNotices = std::chrono::seconds(1);
constexpr std::chrono::hours kSlowestRank{24};

HandleKind handle_kind(const cli::ServeOptions& options, const Launch& launch) {
  return launch.cuda ? options.export_kind : HandleKind::kHost;
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
      endpoint_{launch.device.device, options.slot, Role::kTarget},
      start_(std::chrono::steady_clock::now()),
      kind_(handle_kind(options, launch)) {}

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
  std::unique_ptr<SlabMemory> memory;
  Residency residency = load_shard(memory);
  residency.slabs = memory->export_handles();
  let_go(*memory);
  if (kind_ == HandleKind::kVmm || kind_ == HandleKind::kCudaIpc) {
    for (const Device& device : visible_devices()) {
      if (device.uuid != launch_.device.device) continue;
      const std::uint64_t used = process_used_bytes(device).value_or(0);
      residency.overhead_bytes = used > bytes_ ? used - bytes_ : 0;
    }
  }
  if (kind_ != HandleKind::kCudaIpc) memory.reset();
  control_.cancel().check();
  return serve(std::move(residency), std::move(memory));
}

void RankJob::take_place() {
  directory_.emplace(SocketDir::open(options_.socket_dir, true));
  lock_ = take_lock(*directory_, endpoint_);
  StateFile state;
  state.job = launch_.job;
  state.global_rank = launch_.coords.global;
  state.local_size = launch_.place.local_size;
  state.model = options_.model.model;
  keeper_.emplace(*directory_, endpoint_, std::move(state), launch_.place.node, progress_,
                  supervision_);
}

Residency RankJob::load_shard(std::unique_ptr<SlabMemory>& memory) {
  const Cancel& cancel = control_.cancel();
  RankPlan plan = plan_rank(group_, options_, launch_, cancel);
  bytes_ = plan.load.slabs.total_bytes();
  progress_.total_bytes = plan.reads.read_bytes;

  const CpuBinding binding(launch_.device.device);
  log::info(binding.account());
  if (kind_ == HandleKind::kHost) require_host_memory(group_, launch_, bytes_, cancel);
  memory = allocate_slabs(kind_, plan.load.slabs.slabs, launch_.device.ordinal);
  const LoadResult result = fill(group_, options_, launch_, plan, *memory, progress_, cancel);
  const double rate = result.seconds > 0 ? static_cast<double>(result.bytes_read) /
                                               static_cast<double>(kGiB) / result.seconds
                                         : 0;
  log::info(fmt::format("this rank read {} in {:.2f} s ({:.2f} GiB/s)",
                        format_bytes(result.bytes_read), result.seconds, rate));

  const std::vector<SourceHash> sources =
      audit_sources(group_, plan, result, options_.threads,
                    {std::nullopt, reads_in_flight(options_, launch_), &progress_.reads}, cancel);
  if (launch_.coords.global == 0) remember_hashes(plan.checkpoint, sources);
  return build_residency(options_, launch_, plan, result, sources, endpoint_);
}

// What is exported lives on by itself, so that serving takes no MPI and no CUDA context.
void RankJob::let_go(SlabMemory& memory) {
  group_.finalize({"every rank to finish loading", control_.cancel(), kSlowestRank});
  if (kind_ == HandleKind::kCudaIpc) return;
  memory.unmap();
  if (launch_.cuda) give_up_context(launch_.device.ordinal);
}

ServeEnd RankJob::serve(Residency residency, std::unique_ptr<SlabMemory> memory) {
  ServerOptions server_options;
  server_options.allow_uids = options_.allow_uids;
  Server server(*directory_, std::move(residency), server_options);
  server.on_job_stop([this] { supervision_.request_stop(); });
  server.on_released([&memory] { memory.reset(); });
  const RankControl::Serving serving(control_, server,
                                     [this] { keeper_->ready([this] { announce(); }); });
  supervision_.bound();
  return server.run();
}

void RankJob::announce() const {
  if (launch_.coords.global != 0) return;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  fmt::print(stderr,
             "preload: READY model={} job={} ranks={} dp={} pp={} tp={} memory={} "
             "rank_bytes={} seconds={:.2f} directory={}\n",
             options_.model.model, launch_.job, launch_.sizes.world(), launch_.sizes.dp,
             launch_.sizes.pp, launch_.sizes.tp, handle_kind_name(kind_), bytes_, seconds,
             directory_->path());
}

int RankJob::conclude(const ServeEnd& end) {
  control_.end(end);  // from here on ending, too, is bounded
  switch (end.cause) {
    case ServeEnd::Cause::kStopRequested:
    case ServeEnd::Cause::kJobStop:
      if (keeper_) keeper_->stopped();
      supervision_.bye();
      return end.status;
    case ServeEnd::Cause::kSignal: {
      const JobFailure verdict = supervision_.fail(end.status, end.text);
      leave_tombstone(verdict, code_of_status(verdict.status));
      // Said before the wait: the launcher may kill this rank meanwhile.
      if (verdict.rank == launch_.coords.global) log::warn(end.text);
      let_launcher_see(verdict);
      return verdict.status;
    }
    case ServeEnd::Cause::kFailure:
      break;
  }
  const JobFailure failure =
      control_.failure().value_or(JobFailure{launch_.coords.global, end.status, end.text});
  leave_tombstone(failure, code_of_status(failure.status));
  // A rank that was lost cannot log it: the lowest one that is left does.
  if (failure.lost && launch_.coords.global == (failure.rank == 0 ? 1 : 0)) {
    log::error(failure.text);
  }
  let_launcher_see(failure);
  return failure.status;
}

// Returns when this rank's error is the job's; throws Cancelled when another rank failed first.
JobFailure RankJob::report(Errc code, const std::string& text) {
  const JobFailure verdict = supervision_.fail(exit_status(code), text);
  const bool ours = verdict.rank == launch_.coords.global;
  leave_tombstone(verdict, ours ? wire_code(code) : code_of_status(verdict.status));
  if (ours) return verdict;
  let_launcher_see(verdict);
  throw Cancelled({verdict.status, describe(verdict)});
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
