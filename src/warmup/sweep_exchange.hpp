// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.hpp"
#include "comm/mpi_session.hpp"
#include "warmup/collective_timer.hpp"
#include "warmup/decision.hpp"

namespace preload::warmup {

// What the ranks of a sweep tell each other. Everything that is decided follows from what this
// returns, which is the same on every rank: rank 0's clock travels with each message.
class SweepExchange {
 public:
  SweepExchange(Group& group, std::function<double()> clock, const Cancel& cancel)
      : group_(group), clock_(std::move(clock)), cancel_(cancel) {}

  int rank() const noexcept { return group_.rank(); }
  double seconds() const noexcept { return seconds_; }  // by rank 0's clock, as of the last message
  void agree_on_time();

  // Of `ranks`, in their order.
  std::vector<Offer> offers(const Offer& mine, const std::vector<int>& ranks);
  // By choice, then of `ranks`. `mine` is by choice, then by round; empty on other ranks.
  std::vector<RankTimes> times(const std::vector<std::vector<double>>& mine,
                               const std::vector<int>& ranks, std::size_t choices);

 private:
  std::vector<std::string> gather(const std::string& mine);

  Group& group_;
  const std::function<double()> clock_;
  const Cancel& cancel_;
  double seconds_ = 0;
};

}  // namespace preload::warmup
