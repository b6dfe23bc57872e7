// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.hpp"
#include "comm/launcher.hpp"

namespace preload {

// What a collective waits for, how long at most, and what ends it early.
struct Wait {
  std::string_view what;  // "the other ranks' plans"
  const Cancel& cancel;
  std::chrono::seconds timeout{120};
  const std::atomic<bool>* stop = nullptr;  // set by another thread: ends the wait with an error
};

// Bytes that go to or come from one rank.
struct GroupMessage {
  int rank = 0;
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

// The group of processes that the launcher started: MPI, or one process alone. Collectives return
// values, sleep while they wait, watch `cancel`, and name what they wait for when they time out.
// Called from one thread. After a collective threw, the group takes part in nothing any more.
// Finalizes on finalize() only: never while an exception unwinds.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  // Every rank's bytes, by rank.
  virtual std::vector<std::string> all_gather(std::string_view mine, const Wait& wait) = 0;
  // The root's bytes; `mine` counts there only.
  virtual std::string broadcast(std::string_view mine, int root, const Wait& wait) = 0;
  // out[i] goes to rank i; returns what each rank sent here.
  virtual std::vector<std::string> all_to_all(const std::vector<std::string>& out,
                                              const Wait& wait) = 0;
  // Not collective: sends and receives messages whose sizes both sides know, at most one to and one
  // from each rank. The buffers must live on until the process ends when this throws.
  virtual void exchange(std::span<const GroupMessage> out, std::span<const GroupMessage> in,
                        const Wait& wait) = 0;
  virtual void barrier(const Wait& wait) = 0;
  // Leaves MPI; collectives are an error afterwards. Waits for the others through the same kind of
  // barrier first, so that it cannot hang on a rank that died.
  virtual void finalize(const Wait& wait) = 0;
};

// Bytes that one rank contributes to one MPI call at most; more goes in rounds, past int counts.
inline constexpr std::size_t kMaxRoundBytes = std::size_t{1} << 30;

// "Open MPI v4.1.4", or "without MPI". Starts nothing.
std::string mpi_description();

std::unique_ptr<Group> make_single_group();
// MPI_Init under a watchdog that ends the process with status 5 after `init_timeout`. Throws
// Error(kLauncher) when the launcher started N > 1 tasks and MPI sees a world of 1.
std::unique_ptr<Group> make_mpi_group(const Launcher& launcher, std::chrono::seconds init_timeout,
                                      std::size_t max_round_bytes = kMaxRoundBytes);
// The same processes numbered anew: rank_of[i] is the number of the group's rank i, a permutation.
std::unique_ptr<Group> order_ranks(std::unique_ptr<Group> group, std::vector<int> rank_of);
// Single without a launcher, MPI under one.
std::unique_ptr<Group> make_group(const Launcher& launcher);

}  // namespace preload
