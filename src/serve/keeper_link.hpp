// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "serve/artifact_store.hpp"
#include "serve/holding.hpp"
#include "serve/keeper_use.hpp"
#include "serve/session_loop.hpp"
#include "serve/socket_dir.hpp"
#include "wire/frame_reader.hpp"
#include "wire/frame_writer.hpp"
#include "wire/residency_messages.hpp"

namespace preload {

// A connection to the keeper of `directory`. Throws Error(kBusy) with the remedy when none answers.
Fd connect_to_keeper(const SocketDir& directory, int timeout_ms);

// A daemon's side of its deposit: one connection for life, on the daemon's own loop, that never
// blocks it. When the keeper ends, the link says so once and deposits anew as soon as one runs.
class KeeperLink {
 public:
  using Clock = SessionLoop::Clock;

  // All of these outlive it.
  KeeperLink(const SocketDir& directory, SessionLoop& loop, Holding& holding,
             ArtifactStore& artifacts);
  ~KeeperLink();
  KeeperLink(const KeeperLink&) = delete;
  KeeperLink& operator=(const KeeperLink&) = delete;

  // Does nothing while connected; else tries, at most once in a while unless `now`.
  void connect(bool now = false);
  bool is_connected() const noexcept { return static_cast<bool>(socket_); }
  bool is_settled() const noexcept { return pending_.empty(); }  // all is answered
  std::optional<Clock::time_point> next_try() const;             // unset while connected

  // No-ops without a keeper.
  void add(const Lease& lease);  // before its client is answered: it must survive us from then on
  void add(const Artifact& artifact);
  void forget(const std::vector<std::string>& keys);  // artifacts
  void drain();
  void withdraw();  // and deposits no more

 private:
  void deposit();
  void ask(const wire::DepositRequest& request, std::vector<Fd> fds);
  void on_events();
  void flush();
  void take(wire::Frame frame);
  std::size_t expected_fds() const;
  void take_all();
  void take_artifacts(std::vector<Fd> fds);
  void lose(const std::string& why);

  const SocketDir& directory_;
  SessionLoop& loop_;
  Holding& holding_;
  ArtifactStore& artifacts_;
  Fd socket_;
  wire::FrameReader reader_;
  wire::FrameWriter writer_;
  std::deque<wire::DepositRequest::Step> pending_;  // not answered yet, in their order
  std::optional<wire::DepositReply> arriving_;      // an answer whose descriptors are under way
  std::vector<Fd> arrived_;
  Clock::time_point next_try_ = {};
  bool withdrawn_ = false;
  bool complained_ = false;  // about the present refusal
};

}  // namespace preload
