// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "serve/socket_dir.hpp"
#include "wire/messages.hpp"

namespace preload {

// Whether a job's daemons in one socket directory serve, and why not.
struct Health {
  bool healthy = false;
  std::string state;   // "READY", "LOADING", "FAILED", …
  std::string reason;  // one line; of a healthy node what it serves
  int ready = 0, expected = 0;
  friend bool operator==(const Health&, const Health&) = default;
};

// One daemon at one look: its state file, and what its socket answered.
struct DaemonPulse {
  StateFile file;
  std::optional<wire::DaemonState> answer;  // unset: nobody answers
};
// `expected` daemons make a whole node.
Health judge(const std::vector<DaemonPulse>& pulses, int expected);

// Whether somebody answers hello at a socket, within `timeout`.
bool daemon_answers(const SocketDir& directory, const std::string& socket_name,
                    std::chrono::milliseconds timeout) noexcept;

// Memory of a device, or of the host where it holds weights, as far as it is known.
struct DeviceMemory {
  std::string gpu_uuid;
  std::uint64_t free_bytes = 0, total_bytes = 0;
};

// What the node's daemons say of themselves, in full.
struct NodeReport {
  std::vector<wire::DaemonStatus> daemons;
  std::vector<DeviceMemory> devices;
};

// Looks after a job's daemons from outside, through their sockets as a client would, on a thread of
// its own: whoever asks does not wait for a daemon that hangs. Thread-safe.
class NodeWatch {
 public:
  static constexpr std::chrono::milliseconds kPeriod{250};

  // `directory` outlives it.
  NodeWatch(const SocketDir& directory, std::string job, int expected);
  ~NodeWatch();
  NodeWatch(const NodeWatch&) = delete;
  NodeWatch& operator=(const NodeWatch&) = delete;

  Health health() const;
  void expect(int daemons);  // as many as it turned out to be
  // Asked for anew; what was known before when that takes longer than `patience`.
  NodeReport report(std::chrono::milliseconds patience);

 private:
  void run();
  std::vector<DaemonPulse> feel() const;
  NodeReport ask() const;

  const SocketDir& directory_;
  const std::string job_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool stop_ = false;
  int expected_;
  std::uint64_t asked_ = 0, answered_ = 0;
  Health health_;
  std::chrono::steady_clock::time_point looked_;
  NodeReport report_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace preload
