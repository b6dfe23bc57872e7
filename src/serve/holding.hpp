// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "serve/lease_table.hpp"
#include "serve/package.hpp"
#include "serve/peer.hpp"
#include "serve/residency.hpp"
#include "wire/messages.hpp"

namespace preload {

// The residency while it is served: its state, who leases it, and what is answered about it. Knows
// no sockets. Refusals are thrown as wire::PeerError, logged here once.
class Holding {
 public:
  Holding(Residency residency, std::size_t max_leases);

  wire::Counters& counters() noexcept { return counters_; }  // shown by status

  wire::DaemonState state() const noexcept;
  void admit() noexcept { admitted_ = true; }
  // Kept for a daemon that is gone: attaches are answered, in state ORPHANED.
  void set_orphaned(bool orphaned) noexcept { orphaned_ = orphaned; }
  // Stops attaches until the last lease ends, which frees; or, if it has not and nobody has asked
  // for its release, admits them again. Whether that changed anything.
  bool drain(bool draining);
  // Stops attaches, and frees nothing until drain(true) says so. False where it drains already.
  bool drain_held();

  wire::HelloReply hello() const;
  wire::DescribeReply describe() const;
  wire::DaemonStatus status() const;
  // Opens a lease on `pipe`. `fds` receives the descriptors to send: they stay the residency's.
  wire::AttachReply attach(const wire::AttachRequest& request, Fd pipe, const Peer& peer,
                           std::vector<int>& fds);
  wire::ReleaseReply release(const wire::ReleaseRequest& request, const Peer& peer);

  // What another process held: older generations, and leases of these and of this one.
  void take_over(std::vector<Residency> older, std::vector<Lease> leases);
  PackageView package_view() const;  // of what is held now
  // Takes the leases of `other` that are not here; returns them, with duplicates of their pipes.
  std::vector<wire::LeaseStatus> take_missing(Holding& other, std::vector<Fd>& pipes);
  const Residency& residency() const noexcept { return residency_; }
  const LeaseTable& leases() const noexcept { return leases_; }

  std::vector<Lease> take_leases() { return leases_.take_all(); }

  int lease_epoll_fd() const noexcept { return leases_.epoll_fd(); }
  void end_leases();  // those whose clients are gone

  // Called with each lease that is opened here, before its client is answered.
  void on_lease(std::function<void(const Lease&)> callback) { on_lease_ = std::move(callback); }
  // Called when it was released but is leased still.
  void on_drain(std::function<void()> callback) { on_drain_ = std::move(callback); }
  // Called after the handles were closed.
  void on_freed(std::function<void()> callback) { on_freed_ = std::move(callback); }
  std::string place() const;  // "gpu-… slot a"
  const Endpoint& endpoint() const noexcept { return residency_.endpoint; }

 private:
  void check_attach(const wire::AttachRequest& request, const Peer& peer) const;
  void free_older();
  void free_if_due();

  Residency residency_;
  std::size_t max_leases_;
  std::vector<Residency> older_;  // replaced, and leased still
  LeaseTable leases_;
  wire::Counters counters_;
  bool admitted_ = false;
  bool orphaned_ = false;
  bool draining_ = false;
  bool held_ = false;  // not to be freed yet, though drained
  bool release_asked_ = false;
  bool released_ = false;
  std::string export_kind_;
  std::function<void(const Lease&)> on_lease_;
  std::function<void()> on_drain_, on_freed_;
};

}  // namespace preload
