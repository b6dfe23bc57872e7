// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "serve/artifact_store.hpp"
#include "serve/descriptor_budget.hpp"
#include "serve/holding.hpp"
#include "serve/session_loop.hpp"
#include "serve/socket_dir.hpp"
#include "serve/upkeep.hpp"
#include "wire/residency_messages.hpp"

namespace preload {

inline constexpr std::string_view kKeeperSocket = "keeper.sock";
inline constexpr std::string_view kKeeperLock = "keeper.lock";

struct KeeperOptions {
  SessionOptions sessions = {};
  bool stay = false;                       // it ends only when it is told to
  std::chrono::duration<double> idle{60};  // with nothing kept
  // How long what nobody leases is kept for a daemon that is gone; unset: for ever.
  std::optional<std::chrono::duration<double>> orphan = std::chrono::minutes(10);
};

// Holds what daemons deposit, one residency a place, beyond their death: the same sessions and
// answers as a daemon's, without loading anything. It needs neither CUDA nor MPI.
class Keeper final : private SessionHandler {
 public:
  // Takes keeper.lock (throws Error(kBusy) when another keeper has it) and listens at keeper.sock.
  Keeper(const SocketDir& directory, KeeperOptions options);
  ~Keeper() override;  // closes everything and unlinks the socket
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // Until it is idle, a client stops it, or a signal can be read from `signals` (a signalfd; may be
  // empty). Returns the exit status.
  int run(const Fd& signals);

 private:
  using Clock = SessionLoop::Clock;
  // One place's deposit.
  struct Kept {
    Kept(Residency residency, std::size_t max_leases) : holding(std::move(residency), max_leases) {}
    Holding holding;
    ArtifactStore artifacts{{.count = artifact_capacity()}};
    std::uint64_t deposited_puts = 0;  // of its daemon's artifacts; later ones were left here
    int owner = -1;                    // the session of its daemon; -1: it is gone
    std::optional<Clock::time_point> orphaned_since;
  };
  // A deposit of which not all descriptors are here yet.
  struct Intake {
    std::size_t expected = 0;
    std::vector<Fd> fds;
  };

  void handle(Session& session, wire::Frame frame) override;
  void closed(int fd) override;
  void refused(std::string_view /*cause*/) override {}

  void hello(Session& session, const wire::HelloRequest& request);
  void deposit(Session& session, wire::Frame frame);
  void take_package(Session& session, Intake intake);
  void take_lease(Session& session, const wire::DepositRequest& request, wire::Frame frame);
  void take_artifact(Session& session, const wire::DepositRequest& request, wire::Frame frame);
  static std::size_t take_missing(Kept& fresh, const Kept& before, std::vector<Fd>& fds);
  void adopt(Session& session, const wire::AdoptRequest& request);
  void attach(Session& session, wire::Frame frame);
  void put_artifact(Session& session, wire::Frame frame);
  void get_artifact(Session& session, const wire::GetArtifactRequest& request);
  void withdraw(Session& session, const wire::DepositRequest& request);
  wire::KeeperStatus status() const;

  Kept* find(const std::string& stem);     // orphaned, if its daemon is gone by now
  Kept& kept_for(const Session& session);  // what its hello named; throws Error(kUnavailable)
  // The same, of a daemon that is gone; else throws wire::PeerError that says to ask it instead.
  Kept& orphan_for(const Session& session);
  Kept& owned_by(const Session& session);  // what it deposited; throws Error(kProtocol)
  void orphan(Kept& kept);
  void free(const std::string& stem, std::string_view why);
  void free_overdue();
  bool is_idle() const;
  std::optional<Clock::time_point> next_deadline() const;

  const SocketDir& directory_;
  KeeperOptions options_;
  Fd lock_;
  SessionLoop loop_;
  Upkeep upkeep_;
  std::map<std::string, std::unique_ptr<Kept>> kept_;  // by stem
  std::map<int, Intake> intakes_;                      // by session
  std::map<int, std::string> asked_about_;             // stems, by session
  Clock::time_point empty_since_ = Clock::now();
  std::optional<int> end_;  // the exit status
};

}  // namespace preload
