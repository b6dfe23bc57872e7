// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "wire/artifact_messages.hpp"
#include "wire/messages.hpp"

namespace preload::wire {

// How a residency changes hands: deposited in a keeper, adopted from it, handed over to a
// successor. The package itself is in the descriptors that come along (see serve/package.hpp).

// Descriptors that a message may bring over all its frames: leases are most of them.
inline constexpr std::uint64_t kMaxPackageFds = 1 << 16;

// A daemon to a keeper. One connection deposits one residency and is its daemon's for life.
struct DepositRequest {
  enum class Step : std::uint8_t {
    kPackage,   // replaces what this place had; with `fds` descriptors
    kLease,     // one more, with its pipe
    kArtifact,  // one more, with its content
    kForget,    // artifacts that made room
    kDrain,     // released: it goes with its last lease
    kWithdraw,  // it goes now, whatever is leased
  };
  Step step = Step::kPackage;
  std::uint64_t fds = 0;
  std::optional<std::string> place;  // kWithdraw of another's deposit, by who takes its place
  LeaseStatus lease;
  PutArtifactRequest artifact;
  std::vector<std::string> keys;  // kForget
  friend bool operator==(const DepositRequest&, const DepositRequest&) = default;
};
// What a package did not name, since it came to the keeper while no daemon had the place: leases,
// with their pipes; and so many artifacts (see serve/artifact_package.hpp).
struct DepositReply {
  std::vector<LeaseStatus> leases;
  std::uint64_t artifacts = 0;
  friend bool operator==(const DepositReply&, const DepositReply&) = default;
};

struct AdoptRequest {
  std::string place;
  friend bool operator==(const AdoptRequest&, const AdoptRequest&) = default;
};

// A successor to the daemon whose place it takes. One connection goes through the steps; when it
// ends before kDone, the daemon serves on as if nothing had been asked.
struct HandoverRequest {
  enum class Step : std::uint8_t {
    kPrepare,  // answered with a package, and the lock
    kDrain,    // no more attaches; answered with what is still leased, again and again
    kFree,     // what was drained, once nobody leases it
    kCommit,   // it stops to accept: what was not in the package, its socket and connections
    kDone,     // the successor serves: the daemon ends
  };
  Step step = Step::kPrepare;
  friend bool operator==(const HandoverRequest&, const HandoverRequest&) = default;
};
// `fds` descriptors come along: of a package; or of a commit, the leases' pipes, the artifacts that
// are younger than the package, the listening socket, and clients' connections.
struct PackageReply {
  std::uint64_t fds = 0;
  std::vector<LeaseStatus> leases;  // of a commit
  std::uint64_t artifacts = 0;      // of a commit
  std::uint64_t open_leases = 0;    // of a drain
  friend bool operator==(const PackageReply&, const PackageReply&) = default;
};

// What a keeper says when it is asked for its status without a place.
struct KeeperStatus {
  int pid = 0;
  std::string version;
  bool stays = false;
  std::vector<DaemonStatus> deposits;
  friend bool operator==(const KeeperStatus&, const KeeperStatus&) = default;
};

std::string to_json(const DepositRequest& message);
std::string to_json(const DepositReply& message);
std::string to_json(const AdoptRequest& message);
std::string to_json(const HandoverRequest& message);
std::string to_json(const PackageReply& message);
std::string to_json(const KeeperStatus& message);

DepositRequest deposit_request_from_json(std::string_view text);
DepositReply deposit_reply_from_json(std::string_view text);
AdoptRequest adopt_request_from_json(std::string_view text);
HandoverRequest handover_request_from_json(std::string_view text);
PackageReply package_reply_from_json(std::string_view text);
KeeperStatus keeper_status_from_json(std::string_view text);

}  // namespace preload::wire
