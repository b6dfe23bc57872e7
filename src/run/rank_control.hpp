// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/cancel.hpp"
#include "comm/job_channel.hpp"
#include "comm/watchdog.hpp"
#include "serve/server.hpp"

namespace preload::run {

// Where signals and the job channel reach this rank, whatever it is doing: loading is cancelled,
// serving is ended. The first cause decides; a rank that has not ended `grace` later is ended hard,
// since it may sit in a driver or MPI call that nothing interrupts. Thread-safe.
class RankControl {
 public:
  explicit RankControl(std::chrono::seconds grace = std::chrono::seconds(10));
  RankControl(const RankControl&) = delete;
  RankControl& operator=(const RankControl&) = delete;

  void end(ServeEnd end);
  void fail(const JobFailure& failure);  // of another rank, as the channel tells it
  void ready();                          // every rank is bound
  const Cancel& cancel() const noexcept { return cancel_; }
  void allow(std::chrono::seconds more);  // to a rank that is ending: grace begins after that
  void forget(const Server& server);      // it has ended by itself and is about to go
  std::optional<ServeEnd> decided() const;
  std::optional<JobFailure> failure() const;

  // From here to its destruction ends go to every server, and READY to them. None
  // of this may block.
  class Serving {
   public:
    Serving(RankControl& control, std::vector<Server*> servers);
    ~Serving();
    Serving(const Serving&) = delete;
    Serving& operator=(const Serving&) = delete;

   private:
    RankControl& control_;
  };

 private:
  void end_hard_after(std::chrono::seconds limit);

  const std::chrono::seconds grace_;
  Cancel cancel_;
  mutable std::mutex mutex_;
  std::optional<ServeEnd> decided_;
  std::optional<JobFailure> failure_;
  std::vector<Server*> servers_;
  std::unique_ptr<Watchdog> hard_end_;
};

}  // namespace preload::run
