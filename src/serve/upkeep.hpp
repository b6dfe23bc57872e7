// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"
#include "serve/socket_dir.hpp"

namespace preload {

// Keeps a place what it is while its daemon runs, whoever tidies up the socket directory: the
// files' times say that they are in use, and a socket or lock whose name was removed gets it back.
// A place that another daemon has taken meanwhile is left to it, and that is said once.
class Upkeep {
 public:
  using Clock = std::chrono::steady_clock;

  struct Names {
    std::string socket, lock, state;  // state: may be empty
  };
  // `directory` and the lock behind `lock`, which is -1 for a place without one, outlive it.
  Upkeep(const SocketDir& directory, Names names, int lock,
         std::chrono::milliseconds interval = std::chrono::seconds(2));

  Clock::time_point next() const noexcept { return next_; }
  // At `next()`, of a place that is held: looks, and calls `bind` to make the socket anew.
  void turn(const std::function<void()>& bind);

 private:
  bool is_there(const std::string& name) const noexcept;
  bool has_lock() const noexcept;
  void look_for_another();
  void take_lock_again();
  void touch() const noexcept;

  const SocketDir& directory_;
  const Names names_;
  const int lock_;
  const std::chrono::milliseconds interval_;
  Fd named_lock_;  // on the file that took the place of a removed one
  bool failed_ = false;
  int lost_turns_ = 0;  // in a row
  Clock::time_point next_, touched_;
};

}  // namespace preload
