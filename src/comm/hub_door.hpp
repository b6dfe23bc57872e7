// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "comm/job_channel.hpp"
#include "comm/job_message.hpp"

namespace preload {

// A connection that has proved which rank it is.
struct Arrival {
  JobConnection connection;
  int rank = -1;
};

// Lets the ranks of a job in and keeps strangers out. A stranger has a deadline to prove itself and
// a frame limit; there are few of them at a time, and none makes another wait. Driven by the hub's
// one loop: append_polled, poll, turn.
class HubDoor {
 public:
  using Clock = std::chrono::steady_clock;

  HubDoor(int world, const JobTimings& timings);
  const HubAddress& address() const noexcept { return address_; }

  void append_polled(std::vector<pollfd>& polled) const;
  // `polled` is what append_polled appended; `is_in` tells which ranks are in already.
  std::vector<Arrival> turn(std::span<const pollfd> polled, Clock::time_point now,
                            const std::function<bool(int)>& is_in);
  Clock::time_point next_deadline() const;

 private:
  struct Stranger {
    JobConnection connection;
    std::string nonce;  // our challenge
    Clock::time_point accepted;
    bool gone = false;
  };

  void accept_all(Clock::time_point now, std::size_t limit);
  // The rank that the stranger proved to be; -1 while it has not. A false proof, or anything else,
  // marks it gone.
  int hear(Stranger& stranger, const std::function<bool(int)>& is_in) const;

  const int world_;
  const JobTimings timings_;
  Fd listener_;
  HubAddress address_;
  std::list<Stranger> strangers_;  // oldest first
  Clock::time_point accept_again_{};
  std::size_t ranks_in_ = 0;
};

}  // namespace preload
