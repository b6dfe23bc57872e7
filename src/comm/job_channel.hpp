// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.hpp"
#include "comm/job_progress.hpp"

namespace preload {

// Where rank 0's hub listens, and the secret that lets a rank in. Broadcast by the launcher's
// group; never logged.
struct HubAddress {
  std::vector<std::string> hosts;  // numeric addresses, best first
  std::string boot_id;             // loopback is tried first by ranks that share it
  int port = 0;
  std::string secret_hex;  // 32 random bytes
  friend bool operator==(const HubAddress&, const HubAddress&) = default;
};
std::string encode(const HubAddress& address);
HubAddress decode_hub_address(std::string_view text);  // throws Error(kInternal)

// A failure as every rank hears of it.
struct JobFailure {
  int rank = -1;
  int status = 1;
  std::string text;
  bool lost = false;  // nobody reported it: a connection broke or fell silent
  friend bool operator==(const JobFailure&, const JobFailure&) = default;
};

std::string describe(const JobFailure& failure);  // "rank 2: model.safetensors is short by ..."

struct JobTimings {
  std::chrono::milliseconds heartbeat{2000};
  // Silence after which a peer counts as dead, while the job loads or ends: somebody waits for it.
  std::chrono::milliseconds lost{8000};
  std::chrono::milliseconds authentication{5000};  // for a connection to prove itself
  std::chrono::milliseconds connect{30000};        // for a rank to reach the hub, all addresses
  // While the job is READY: nobody waits, and a suspended process or a paused virtual machine comes
  // back. One that has ended is noticed by its connection, at once.
  std::chrono::milliseconds lost_when_ready{60000};
};

// Rank 0's side: one thread, a connection per rank for life. Broadcasts READY when all are BOUND,
// FAILED when one fails or is lost, STOP when one asks.
class JobHub {
 public:
  // `on_failure` is called with the job's failure, on the hub's thread and before any rank is told:
  // the first rank that ends may take this process with it.
  JobHub(int world, std::function<void(const JobFailure&)> on_failure, JobTimings timings = {});
  ~JobHub();  // says goodbye to whoever is left; the ranks go on unsupervised
  JobHub(const JobHub&) = delete;
  JobHub& operator=(const JobHub&) = delete;
  const HubAddress& address() const noexcept;
  // Once the whole job was asked to stop: waits until every rank has left, at most for `limit`. The
  // job's failure where one did not: it hangs, and is not to be left behind as if all were well.
  std::optional<JobFailure> await_goodbyes(std::chrono::milliseconds limit) const;
  // Every rank that is there, as of its last heartbeat.
  std::vector<RankProgress> progress() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a rank hears. Called on the member's thread: must not block.
struct JobEvents {
  std::function<void()> ready;
  std::function<void(const JobFailure&)> failed;
  std::function<void()> stop;  // a requested stop of the whole job
};

// Every rank's side (rank 0 too). Heartbeats both ways; a lost hub is a failure with status 1.
class JobMember {
 public:
  // Throws Error(kLauncher) with every address tried when the hub cannot be reached.
  JobMember(const HubAddress& address, int rank, JobEvents events, JobTimings timings = {});
  ~JobMember();
  JobMember(const JobMember&) = delete;
  JobMember& operator=(const JobMember&) = delete;

  void set_progress(const RankProgress& progress) noexcept;  // with the next heartbeats
  std::optional<int> slowest_rank() const noexcept;  // of the job, as of the hub's last heartbeat
  void bound();                                      // my socket is bound
  // My warm-up is over. Once that of every rank is: how many of them were in vain. Nothing when
  // `cancel` came first, or after `limit`.
  std::optional<int> await_warm_ups(bool succeeded, const Cancel& cancel,
                                    std::chrono::milliseconds limit);
  // A failure of `of_rank`, else of this rank. Waits until the hub has told the others. Returns the
  // job's failure: this one, or the one that the hub knew already; nothing when the hub does not
  // answer. `events.failed` is not called afterwards.
  std::optional<JobFailure> fail(int status, const std::string& text,
                                 std::optional<int> of_rank = std::nullopt);
  // Nothing but the others keeps this rank: returns when that is so of every rank that is left, or
  // after `limit`.
  void await_others(std::chrono::milliseconds limit);
  void request_stop();  // stop the whole job
  void bye();           // I was asked to stop; waits until the hub knows

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace preload
