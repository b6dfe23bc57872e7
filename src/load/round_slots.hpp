// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

#include "base/cancel.hpp"

namespace preload {

// Chunks are read ahead of the rounds that send them, each into one of a few slots: the n-th chunk
// takes slot n mod the number of slots, once the chunk that had it before has left.
class RoundSlots {
 public:
  RoundSlots(std::size_t slots, std::size_t chunks) : slots_(slots), ready_(chunks) {}

  std::size_t slot_of(std::size_t chunk) const noexcept { return chunk % slots_; }
  // False when `stop` was set meanwhile.
  bool wait_free(std::size_t chunk, const Cancel& cancel, const std::atomic<bool>& stop) {
    return wait(cancel, stop, [&] { return chunk < left_ + slots_; });
  }
  void set_ready(std::size_t chunk) {
    change([&] { ready_[chunk] = true; });
  }
  bool wait_ready(std::size_t chunk, const Cancel& cancel, const std::atomic<bool>& stop) {
    return wait(cancel, stop, [&] { return ready_[chunk]; });
  }
  // All chunks up to and with this one have left their slots.
  void set_left(std::size_t chunk) {
    change([&] { left_ = chunk + 1; });
  }

 private:
  template <class Change>
  void change(const Change& make) {
    {
      const std::lock_guard lock(mutex_);
      make();
    }
    changed_.notify_all();
  }
  template <class Condition>
  bool wait(const Cancel& cancel, const std::atomic<bool>& stop, const Condition& holds) {
    constexpr auto kTurn = std::chrono::milliseconds(20);
    std::unique_lock lock(mutex_);
    while (!holds()) {
      cancel.check();
      if (stop.load(std::memory_order_relaxed)) return false;
      changed_.wait_for(lock, kTurn);
    }
    cancel.check();
    return !stop.load(std::memory_order_relaxed);
  }

  const std::size_t slots_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> ready_;
  std::size_t left_ = 0;
};

}  // namespace preload
