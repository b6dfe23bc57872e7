// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.hpp"

namespace preload {

// One way for signals and the job channel to stop long work. The first cause wins.
class Cancel {
 public:
  struct Cause {
    int status;  // the exit status that the cause asks for
    std::string text;
  };

  void request(Cause cause);
  bool requested() const noexcept { return requested_.load(std::memory_order_acquire); }
  std::optional<Cause> cause() const;
  void check() const;  // throws Cancelled when requested

 private:
  std::atomic<bool> requested_{false};
  mutable std::mutex mutex_;
  std::optional<Cause> cause_;
};

// Thrown out of cancelled work; carries the exit status that the cause asked for.
class Cancelled : public Error {
 public:
  explicit Cancelled(Cancel::Cause cause);
  int status() const noexcept { return status_; }

 private:
  int status_;
};

}  // namespace preload
