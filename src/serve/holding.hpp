// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "serve/lease_table.hpp"
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

  wire::HelloReply hello() const;
  wire::DescribeReply describe() const;
  wire::DaemonStatus status() const;
  // Opens a lease on `pipe`. `fds` receives the descriptors to send: they stay the residency's.
  wire::AttachReply attach(const wire::AttachRequest& request, Fd pipe, const Peer& peer,
                           std::vector<int>& fds);
  wire::ReleaseReply release(const wire::ReleaseRequest& request, const Peer& peer);

  int lease_epoll_fd() const noexcept { return leases_.epoll_fd(); }
  void end_leases();  // those whose clients are gone

  // Called after the handles were closed.
  void on_freed(std::function<void()> callback) { on_freed_ = std::move(callback); }
  const Endpoint& endpoint() const noexcept { return residency_.endpoint; }

 private:
  std::string place() const;  // "gpu-… slot a"
  std::uint64_t bytes() const noexcept;
  void check_attach(const wire::AttachRequest& request, const Peer& peer) const;
  void free_if_due();

  Residency residency_;
  std::size_t max_leases_;
  LeaseTable leases_;
  wire::Counters counters_;
  bool admitted_ = false;
  bool draining_ = false;
  bool released_ = false;
  std::string export_kind_;
  std::function<void()> on_freed_;
};

// A client's own words as far as they are fit for a log line and a table.
std::string printable_name(std::string_view name);

}  // namespace preload
