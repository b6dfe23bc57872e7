// SPDX-License-Identifier: Apache-2.0
#include "serve/holding.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "serve/expectation.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRetryWhileLoadingMs = 200;
constexpr int kRetryWhenFullMs = 1000;
constexpr std::size_t kMaxNameLength = 64;

std::string_view kind_name(HandleKind kind) {
  switch (kind) {
    case HandleKind::kHost:
      return wire::kHostKind;
    case HandleKind::kVmm:
      return wire::kVmmKind;
    case HandleKind::kCudaIpc:
      return wire::kCudaIpcKind;
  }
  return {};
}

// Of a shard without a byte, which has no slab to ask.
std::string_view kind_without_slabs(const Endpoint& endpoint) {
  return endpoint.device.starts_with("host:") ? wire::kHostKind : wire::kVmmKind;
}

double age_s(const Lease& lease) {
  const double seconds = std::chrono::duration<double>(Clock::now() - lease.since).count();
  return std::round(seconds * 1000) / 1000;
}

std::string lease_text(const Lease& lease) {
  return fmt::format("pid {} ({})", lease.pid, lease.name);
}

[[noreturn]] void refuse(wire::ErrorReply reply, const Peer& peer) {
  log::warn(fmt::format("refused pid {}: {}", peer.pid, reply.message));
  throw wire::PeerError(std::move(reply));
}

}  // namespace

std::string printable_name(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, kMaxNameLength))
    out.push_back(c >= 0x20 && c < 0x7F ? c : '?');
  return out;
}

Holding::Holding(Residency residency, std::size_t max_leases)
    : residency_(std::move(residency)),
      max_leases_(max_leases),
      export_kind_(residency_.slabs.empty() ? kind_without_slabs(residency_.endpoint)
                                            : kind_name(residency_.slabs.front().kind)) {
  counters_.loads = residency_.loads;
}

wire::DaemonState Holding::state() const noexcept {
  if (released_) return wire::DaemonState::kReleased;
  if (draining_) return wire::DaemonState::kDraining;
  return admitted_ ? wire::DaemonState::kReady : wire::DaemonState::kLoading;
}

std::string Holding::place() const {
  const Endpoint& at = residency_.endpoint;
  return at.device + (at.slot.empty() ? "" : " slot " + at.slot) +
         (at.role == Role::kDraft ? " draft" : "");
}

std::uint64_t Holding::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const SlabHandle& slab : residency_.slabs) sum += slab.bytes;
  return sum;
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
  reply.bytes = bytes();
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
  status.bytes = bytes();
  status.overhead_bytes = residency_.overhead_bytes;
  status.generation = residency_.generation;
  status.progress.bytes = status.progress.total_bytes = status.bytes;
  status.export_kind = export_kind_;
  status.version = PRELOAD_VERSION;
  status.local_size = residency_.local_size;
  status.counters = counters_;
  for (const auto& [fd, lease] : leases_.leases())
    status.leases.push_back({lease.pid, lease.name, age_s(lease)});
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
  if (!admitted_) {
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
        {slab.bytes, slab.cls, std::string(kind_name(slab.kind)), slab.ipc_bytes});
    if (slab.kind != HandleKind::kCudaIpc) fds.push_back(slab.fd.get());
  }
  Lease lease;
  lease.pipe = std::move(pipe);
  // The kernel's word first; a pid that it cannot express here is the client's own.
  lease.pid = peer.pid != 0 ? peer.pid : request.client.pid;
  lease.name = printable_name(request.client.name);
  lease.since = Clock::now();
  const std::string who = lease_text(lease);
  leases_.add(std::move(lease));
  log::info(fmt::format("{} attached to {}{}; open leases: {}", who, place(),
                        request.mode == wire::AttachMode::kCopy ? " to copy it" : "",
                        leases_.size()));
  return reply;
}

wire::ReleaseReply Holding::release(const wire::ReleaseRequest& request, const Peer& peer) {
  const bool news = !draining_ && !released_;
  draining_ = true;
  if (news)
    log::info(fmt::format("pid {} asked to release {}; open leases: {}", peer.pid, place(),
                          leases_.size()));
  if (!request.after_leases)
    for (const Lease& lease : leases_.take_all())
      log::warn(fmt::format("pid {} forced the release of {}: the lease of {} was ended", peer.pid,
                            place(), lease_text(lease)));
  free_if_due();
  return {state(), leases_.size()};
}

void Holding::end_leases() {
  for (const Lease& lease : leases_.take_ended())
    log::info(fmt::format("the lease of {} on {} ended after {:.1f} s; open leases: {}",
                          lease_text(lease), place(), age_s(lease), leases_.size()));
  free_if_due();
}

void Holding::free_if_due() {
  if (!draining_ || released_ || leases_.size() > 0) return;
  const std::uint64_t freed = bytes();
  released_ = true;
  residency_.slabs.clear();
  residency_.manifest.reset();
  residency_.overhead_bytes = 0;
  if (on_freed_) on_freed_();
  log::info(fmt::format("released {}: {} freed", place(), format_bytes(freed)));
}

}  // namespace preload
