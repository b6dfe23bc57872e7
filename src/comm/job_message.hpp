// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.hpp"

namespace preload {

// One message of the job channel. Frame: u32 length (little endian), then a JSON object.
// A rank proves that it knows the job's secret, and so does the hub, without showing it:
//   hub → CHALLENGE{nonce}; rank → HELLO{rank, nonce, proof}; hub → WELCOME{proof}.
// The messages after that are not signed: the channel keeps strangers out of a job, it does not
// defend against someone who rewrites TCP streams.
struct JobMessage {
  enum class Type {
    kChallenge,
    kHello,
    kWelcome,  // handshake
    kBound,
    kStop,
    kBye,  // rank to hub (STOP: both ways)
    kReady,
    kAck,
    kGoodbye,  // hub to rank
    kFailed,
    kHeartbeat,  // both ways
    kDone,       // rank to hub: only the others keep me; hub to rank: nobody is kept
    kWarm,       // rank to hub: my warm-up is over, STATUS 1: in vain; hub to rank: those of all
                 // are, STATUS how many in vain
  };
  Type type = Type::kHeartbeat;
  int rank = -1;
  int status = 0;
  bool lost = false;
  bool log = false;  // of GOODBYE: you are the one that tells the user
  std::string text;
  std::string nonce, proof;
  std::uint64_t bytes = 0, total_bytes = 0, bytes_per_s = 0;  // of a rank's HEARTBEAT
  int node = 0;
  int slowest_rank = -1;  // of the hub's HEARTBEAT
  friend bool operator==(const JobMessage&, const JobMessage&) = default;
};

inline constexpr std::size_t kMaxStrangerBytes = 1024;        // a frame before the proof
inline constexpr std::size_t kMaxJobMessageBytes = 64 << 10;  // and after it

std::string encode_frame(const JobMessage& message);           // long texts are cut
std::optional<JobMessage> decode_body(std::string_view json);  // nothing when malformed

std::string random_hex(std::size_t bytes);
enum class Prover { kRank, kHub };
// HMAC-SHA256 under the secret, over who proves, both nonces and the rank.
std::string make_proof(const std::string& secret_hex, Prover prover, const std::string& hub_nonce,
                       const std::string& rank_nonce, int rank);
bool same_proof(const std::string& a, const std::string& b) noexcept;  // in constant time

// One non-blocking connection with its unsent and half-received bytes.
class JobConnection {
 public:
  explicit JobConnection(Fd socket);
  int fd() const noexcept { return socket_.get(); }
  void queue(const JobMessage& message) { out_ += encode_frame(message); }
  bool wants_write() const noexcept { return !out_.empty(); }
  // Sends what fits. False when the peer is gone, or has not read for a mebibyte of messages.
  bool flush();
  // Appends the whole messages that have arrived. False when the peer closed the connection, sent a
  // frame above `limit` or something that is no message; what came before counts.
  bool read(std::vector<JobMessage>& messages, std::size_t limit);

 private:
  Fd socket_;
  std::string in_, out_;
};

}  // namespace preload
