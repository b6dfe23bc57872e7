// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/fd.hpp"
#include "serve/artifact_store.hpp"
#include "serve/held_place.hpp"
#include "serve/holding.hpp"
#include "serve/session_loop.hpp"
#include "wire/residency_messages.hpp"

namespace preload {

// A daemon's part in its succession: one successor at a time, on one connection. Until the
// successor says that it serves, the daemon can go on as if nothing had been asked; it does when
// the connection ends before, once the successor is known to have ended, too: one that found this
// daemon too slow takes the place without it.
class Handover {
 public:
  using Clock = SessionLoop::Clock;

  // `lock` is the daemon's, -1 for one that cannot be succeeded. The rest outlives it.
  Handover(SessionLoop& loop, Holding& holding, const ArtifactStore& artifacts, HeldPlace& place,
           int lock)
      : loop_(loop), holding_(holding), artifacts_(artifacts), place_(place), lock_(lock) {}

  void handle(Session& session, const wire::HandoverRequest& request);
  void closed(int fd);
  void turn();  // answers a commit once no client's request is half done
  std::optional<Clock::time_point> deadline() const noexcept {
    return answer_by_ ? answer_by_ : look_again_;
  }
  bool is_done() const noexcept { return done_; }
  // From a commit on, until the successor is known to have ended: the place may be its by now.
  bool is_committed() const noexcept { return committed_; }
  // A successor was lost, and may serve: nothing is to be done in the place's name.
  bool is_in_doubt() const noexcept { return look_again_.has_value(); }

 private:
  void prepare(Session& session);
  void answer_commit();
  void check_successor(const Session& session) const;
  void settle_doubt();

  SessionLoop& loop_;
  Holding& holding_;
  const ArtifactStore& artifacts_;
  HeldPlace& place_;
  int lock_;
  int successor_ = -1;             // its session
  std::uint64_t packed_puts_ = 0;  // of artifacts that the package has
  bool drained_ = false;
  Fd listener_;  // from commit on: the successor has it, too
  std::optional<Clock::time_point> answer_by_;
  bool committed_ = false;
  std::optional<Clock::time_point> look_again_;  // while what became of a successor is not known
  bool done_ = false;
};

}  // namespace preload
