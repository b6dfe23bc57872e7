// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace preload {

// Where rank 0's hub listens, and the secret that lets a rank in. Broadcast by the launcher's
// group; never logged.
struct HubAddress {
  std::vector<std::string> hosts;  // numeric addresses, best first; loopback is tried on same_host
  std::string boot_id;
  int port = 0;
  std::string secret_hex;  // 32 random bytes
};
std::string encode(const HubAddress& address);
HubAddress decode_hub_address(std::string_view text);

// A failure as every rank hears of it.
struct JobFailure {
  int rank = -1;
  int status = 1;
  std::string text;
};

// Rank 0's side: one thread, a connection per rank for life. Broadcasts READY when all are BOUND,
// FAILED when one fails or is lost, STOP when one asks.
class JobHub {
 public:
  JobHub(int world, std::string job_id);
  ~JobHub();  // says goodbye to whoever is left; the ranks go on unsupervised
  JobHub(const JobHub&) = delete;
  JobHub& operator=(const JobHub&) = delete;
  HubAddress address() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What a rank hears. Called on the member's thread: must not block.
struct JobEvents {
  std::function<void()> ready;
  std::function<void(const JobFailure&)> failed;
  std::function<void()> stop;       // a requested stop of the whole job
};

// Every rank's side (rank 0 too). Heartbeats both ways; a lost hub is a failure with status 1.
class JobMember {
 public:
  JobMember(const HubAddress& address, int rank, JobEvents events);
  ~JobMember();
  JobMember(const JobMember&) = delete;
  JobMember& operator=(const JobMember&) = delete;

  void bound();                             // my socket is bound
  void fail(int status, const std::string& text);  // waits until the hub has told the others
  void request_stop();                      // stop the whole job
  void bye();                               // I was asked to stop; waits until the hub knows

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace preload
