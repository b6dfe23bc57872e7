// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

namespace preload {

// A node's reads in flight on one network file system where nothing else was asked for: enough to
// fill its link, few enough that other clients of the server still get their turn.
inline constexpr int kNetworkReadsOfNode = 32;

// How many reads one process may have in flight on one file system, by its kind; 0: any number.
struct ReadsInFlight {
  int local = 0;  // a disk or memory of this machine
  int network = kNetworkReadsOfNode;
  friend bool operator==(const ReadsInFlight&, const ReadsInFlight&) = default;
};

// A rank's share of what its node may have, at least 1: of `of_node` on every file system, else of
// the default on network ones.
ReadsInFlight share_of_reads(std::optional<int> of_node, int ranks_on_node) noexcept;

// Lets at most `limit` (> 0) reads through at a time. Thread-safe.
class ReadGate {
 public:
  explicit ReadGate(int limit) noexcept : limit_(limit) {}

  // Waits until there is room for one and takes up to `wanted` (> 0); gives how many it took.
  int enter(int wanted);
  void leave(int taken);
  int most() const;  // that were in flight together, so far

 private:
  const int limit_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable left_;
  int inside_ = 0;
  int most_ = 0;
};

// What a read may have in flight, until the end of the scope. Without a gate: all it wants.
class ReadPass {
 public:
  ReadPass(ReadGate* gate, int wanted) : gate_(gate), count_(gate ? gate->enter(wanted) : wanted) {}
  ~ReadPass() {
    if (gate_ != nullptr) gate_->leave(count_);
  }
  ReadPass(const ReadPass&) = delete;
  ReadPass& operator=(const ReadPass&) = delete;
  int count() const noexcept { return count_; }

 private:
  ReadGate* const gate_;
  const int count_;
};

}  // namespace preload
