// SPDX-License-Identifier: Apache-2.0
#include "serve/holding.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "serve/expectation.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRetryWhileLoadingMs = 200;
constexpr int kRetryWhenFullMs = 1000;

std::string lease_text(const Lease& lease) {
  return fmt::format("pid {} ({})", lease.pid, lease.name);
}

[[noreturn]] void refuse(wire::ErrorReply reply, const Peer& peer) {
  log::warn(fmt::format("refused pid {}: {}", peer.pid, reply.message));
  throw wire::PeerError(std::move(reply));
}

}  // namespace

Holding::Holding(Residency residency, std::size_t max_leases)
    : residency_(std::move(residency)),
      max_leases_(max_leases),
      export_kind_(export_kind_of(residency_)) {
  counters_.loads = residency_.loads;
}

wire::DaemonState Holding::state() const noexcept {
  if (released_) return wire::DaemonState::kReleased;
  if (draining_) return wire::DaemonState::kDraining;
  if (orphaned_) return wire::DaemonState::kOrphaned;
  return admitted_ ? wire::DaemonState::kReady : wire::DaemonState::kLoading;
}

std::string Holding::place() const {
  const Endpoint& at = residency_.endpoint;
  return at.device + (at.slot.empty() ? "" : " slot " + at.slot) +
         (at.role == Role::kDraft ? " draft" : "");
}

wire::HelloReply Holding::hello() const {
  return {PRELOAD_VERSION,
          ::getpid(),
          residency_.endpoint.device,
          residency_.endpoint.slot,
          std::string(role_name(residency_.endpoint.role)),
          state()};
}

wire::DescribeReply Holding::describe() const {
  wire::DescribeReply reply;
  reply.key = residency_.key;
  reply.checkpoint = residency_.checkpoint;
  reply.fields = residency_.fields;
  reply.receipt_json = residency_.receipt_json;
  reply.shard_json = residency_.shard_json;
  reply.gpu_uuid = residency_.endpoint.device;
  reply.slot = residency_.endpoint.slot;
  reply.role = role_name(residency_.endpoint.role);
  reply.job = residency_.job;
  reply.model = residency_.model;
  reply.export_kind = export_kind_;
  reply.global_rank = residency_.coords.global;
  reply.dp = residency_.coords.dp;
  reply.pp = residency_.coords.pp;
  reply.tp = residency_.coords.tp;
  reply.ep = residency_.coords.ep;
  reply.generation = residency_.generation;
  reply.tensors = residency_.tensor_count;
  reply.bytes = bytes_of(residency_);
  return reply;
}

wire::DaemonStatus Holding::status() const {
  wire::DaemonStatus status;
  status.gpu_uuid = residency_.endpoint.device;
  status.slot = residency_.endpoint.slot;
  status.role = role_name(residency_.endpoint.role);
  status.job = residency_.job;
  status.pid = ::getpid();
  status.global_rank = residency_.coords.global;
  status.state = state();
  status.model = residency_.model;
  status.key = residency_.key;
  status.checkpoint = residency_.checkpoint;
  status.receipt_json = residency_.receipt_json;
  status.bytes = bytes_of(residency_);
  status.overhead_bytes = residency_.overhead_bytes;
  status.generation = residency_.generation;
  status.progress.bytes = status.progress.total_bytes = status.bytes;
  status.export_kind = export_kind_;
  status.version = PRELOAD_VERSION;
  status.local_size = residency_.local_size;
  status.engine_caches = residency_.engine_caches;
  status.counters = counters_;
  for (const auto& [fd, lease] : leases_.leases()) {
    wire::LeaseStatus& shown = status.leases.emplace_back();
    shown = {lease.pid, lease.name, age_s(lease)};
    if (lease.generation != residency_.generation) shown.generation = lease.generation;
  }
  return status;
}

void Holding::check_attach(const wire::AttachRequest& request, const Peer& peer) const {
  wire::ErrorReply reply;
  reply.state = state();
  if (released_ || draining_) {
    reply.code = Errc::kReleased;
    reply.message =
        fmt::format("the weights of {} were released: start preload again to serve them", place());
    refuse(std::move(reply), peer);
  }
  if (!admitted_ && !orphaned_) {
    reply.code = Errc::kUnavailable;
    reply.message =
        fmt::format("{} is loaded, but other ranks of job {} are not ready yet: wait for READY",
                    place(), residency_.job);
    reply.retry_after_ms = kRetryWhileLoadingMs;
    throw wire::PeerError(std::move(reply));  // clients poll: not worth a line each time
  }
  reply.fields = find_mismatches(request.expect, residency_);
  if (!reply.fields.empty()) {
    reply.code = Errc::kMismatch;
    reply.message =
        fmt::format("{} holds something else: {}", place(), mismatch_text(reply.fields));
    refuse(std::move(reply), peer);
  }
  if (leases_.size() >= max_leases_) {
    reply.code = Errc::kBusy;
    reply.message = fmt::format(
        "{} is leased by {} clients, as many as `ulimit -n` allows: let "
        "some go, or start preload with a higher limit",
        place(), leases_.size());
    reply.retry_after_ms = kRetryWhenFullMs;
    refuse(std::move(reply), peer);
  }
}

wire::AttachReply Holding::attach(const wire::AttachRequest& request, Fd pipe, const Peer& peer,
                                  std::vector<int>& fds) {
  check_attach(request, peer);
  wire::AttachReply reply;
  reply.key = residency_.key;
  reply.checkpoint = residency_.checkpoint;
  reply.generation = residency_.generation;
  reply.gpu_uuid = residency_.endpoint.device;
  reply.device = export_kind_ == wire::kHostKind ? "host" : "cuda";
  reply.slot = residency_.endpoint.slot;
  reply.role = role_name(residency_.endpoint.role);
  reply.job = residency_.job;
  reply.model = residency_.model;
  reply.global_rank = residency_.coords.global;
  fds.push_back(residency_.manifest.get());
  for (const SlabHandle& slab : residency_.slabs) {
    reply.slabs.push_back(
        {slab.bytes, slab.cls, std::string(kind_on_wire(slab.kind)), slab.ipc_bytes});
    if (slab.kind != HandleKind::kCudaIpc) fds.push_back(slab.fd.get());
  }
  Lease lease;
  lease.pipe = std::move(pipe);
  // The kernel's word first; a pid that it cannot express here is the client's own.
  lease.pid = peer.pid != 0 ? peer.pid : request.client.pid;
  lease.name = printable_name(request.client.name);
  lease.since = Clock::now();
  lease.generation = residency_.generation;
  const std::string who = lease_text(lease);
  if (on_lease_) on_lease_(lease);
  leases_.add(std::move(lease));
  log::info(fmt::format("{} attached to {}{}; open leases: {}", who, place(),
                        request.mode == wire::AttachMode::kCopy ? " to copy it" : "",
                        leases_.size()));
  return reply;
}

void Holding::take_over(std::vector<Residency> older, std::vector<Lease> leases) {
  for (Residency& residency : older) older_.push_back(std::move(residency));
  for (Lease& lease : leases) leases_.add(std::move(lease));
  end_leases();
}

std::vector<wire::LeaseStatus> Holding::take_missing(Holding& other, std::vector<Fd>& pipes) {
  std::vector<wire::LeaseStatus> missing;
  for (Lease& lease : other.leases_.take_all()) {
    const wire::LeaseStatus status{lease.pid, lease.name, age_s(lease), lease.generation};
    Fd pipe = duplicate(lease.pipe.get());
    if (!leases_.add(std::move(lease))) continue;
    missing.push_back(status);
    pipes.push_back(std::move(pipe));
  }
  return missing;
}

PackageView Holding::package_view() const {
  PackageView view;
  if (!released_) view.generations.push_back(&residency_);
  view.generation = residency_.generation;
  for (const Residency& residency : older_) view.generations.push_back(&residency);
  view.leases = &leases_;
  view.draining = draining_ && !held_;
  return view;
}

bool Holding::drain(bool draining) {
  if (released_ || (!draining && release_asked_)) return false;
  const bool changes = draining_ != draining || held_;
  held_ = false;
  draining_ = draining;
  free_if_due();
  return changes;
}

bool Holding::drain_held() {
  if (released_ || draining_) return false;
  draining_ = held_ = true;
  return true;
}

wire::ReleaseReply Holding::release(const wire::ReleaseRequest& request, const Peer& peer) {
  const bool news = !release_asked_ && !released_;
  release_asked_ = true;
  draining_ = true;
  held_ = false;
  if (news)
    log::info(fmt::format("pid {} asked to release {}; open leases: {}", peer.pid, place(),
                          leases_.size()));
  if (!request.after_leases)
    for (const Lease& lease : leases_.take_all())
      log::warn(fmt::format("pid {} forced the release of {}: the lease of {} was ended", peer.pid,
                            place(), lease_text(lease)));
  free_if_due();
  if (news && !released_ && on_drain_) on_drain_();
  return {state(), leases_.size()};
}

void Holding::end_leases() {
  for (const Lease& lease : leases_.take_ended())
    log::info(fmt::format("the lease of {} on {} ended after {:.1f} s; open leases: {}",
                          lease_text(lease), place(), age_s(lease), leases_.size()));
  free_older();
  free_if_due();
}

// A generation that was replaced goes with its last lease.
void Holding::free_older() {
  std::erase_if(older_, [&](const Residency& residency) {
    for (const auto& [fd, lease] : leases_.leases())
      if (lease.generation == residency.generation) return false;
    log::info(fmt::format("generation {} of {} is leased by nobody any more: {} freed",
                          residency.generation, place(), format_bytes(bytes_of(residency))));
    return true;
  });
}

void Holding::free_if_due() {
  if (!draining_ || held_ || released_ || leases_.size() > 0) return;
  const std::uint64_t freed = bytes_of(residency_);
  released_ = true;
  residency_.slabs.clear();
  residency_.manifest.reset();
  residency_.overhead_bytes = 0;
  if (on_freed_) on_freed_();
  log::info(fmt::format("released {}: {} freed", place(), format_bytes(freed)));
}

}  // namespace preload
