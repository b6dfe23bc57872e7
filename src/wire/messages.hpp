// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "model/copy_program.hpp"
#include "wire/counters.hpp"
#include "wire/progress.hpp"

namespace preload::wire {

// The bodies of frames as values. to_json never fails; the readers throw Error(kProtocol) naming
// the member that is absent, of a wrong type or out of range. Unknown members are ignored, but not
// inside `expect`: an expectation that cannot be checked must not count as met.

enum class DaemonState : std::uint8_t {
  kLoading,
  kReady,
  kDraining,  // release was asked for and leases remain
  kReleased,
  kFailed,
  kOrphaned,
};
std::string_view state_name(DaemonState state) noexcept;  // "LOADING", "READY", …
std::optional<DaemonState> state_from_name(std::string_view name) noexcept;

struct ClientIdentity {
  int pid = 0;
  std::string name;
  std::string version;
  friend bool operator==(const ClientIdentity&, const ClientIdentity&) = default;
};

struct HelloRequest {
  ClientIdentity client;
  // Of a keeper, which answers for several daemons: whose the further requests of this connection
  // are about, by the stem of its files' names.
  std::optional<std::string> place = std::nullopt;
  friend bool operator==(const HelloRequest&, const HelloRequest&) = default;
};
struct HelloReply {
  std::string version;  // the daemon's
  int pid = 0;
  std::string gpu_uuid, slot, role;
  DaemonState state = DaemonState::kLoading;
  friend bool operator==(const HelloReply&, const HelloReply&) = default;
};

// What a client insists on. All of it must hold.
struct Expectation {
  std::optional<std::string> key;             // 64 hex digits
  std::optional<std::string> checkpoint;      // checkpoint id, 64 hex digits
  std::map<std::string, std::string> fields;  // key fields by name
  bool empty() const noexcept { return !key && !checkpoint && fields.empty(); }
  friend bool operator==(const Expectation&, const Expectation&) = default;
};
// `{"key": hex, "checkpoint": hex, "fields": {name: text, number or boolean}}`. Throws Error(code):
// kUsage where a user wrote it.
Expectation expectation_from_json(std::string_view text, Errc code);

enum class AttachMode : std::uint8_t { kMap, kCopy };  // copy: will clone, release and let go

// With one fd: the read end of the lease pipe.
struct AttachRequest {
  Expectation expect;
  AttachMode mode = AttachMode::kMap;
  ClientIdentity client;
  friend bool operator==(const AttachRequest&, const AttachRequest&) = default;
};

inline constexpr std::string_view kHostKind = "host";
inline constexpr std::string_view kVmmKind = "vmm";
inline constexpr std::string_view kCudaIpcKind = "cuda-ipc";

struct SlabInfo {
  std::uint64_t bytes = 0;
  TensorClass cls = TensorClass::kShared;
  std::string kind;    // "host", "vmm": an fd comes along; "cuda-ipc": none
  std::string handle;  // cuda-ipc: 64 raw bytes (hex on the wire)
  friend bool operator==(const SlabInfo&, const SlabInfo&) = default;
};

// With fds: the manifest first, then one for each slab that has one, in order. What does not fit
// into one frame follows in further ones (see exchange.hpp).
struct AttachReply {
  std::string key, checkpoint;
  std::uint64_t generation = 1;
  std::string gpu_uuid;  // "gpu-…", "mig-…" or "host:N"
  std::string device;    // "cuda" or "host"
  std::string slot, role, job, model;
  int global_rank = 0;
  std::vector<SlabInfo> slabs;
  friend bool operator==(const AttachReply&, const AttachReply&) = default;

  std::size_t fd_count() const noexcept;
};

// A receipt of more bytes would crowd the rest of its frame out.
inline constexpr std::size_t kMaxReceiptBytes = 512 * 1024;

// What a daemon holds, for whoever wants to match before attaching.
struct DescribeReply {
  std::string key, checkpoint;
  std::map<std::string, std::string> fields;
  std::string receipt_json;  // empty: none; left out past kMaxReceiptBytes
  std::string shard_json;    // what the manifest says of the shard: how to plan it again
  std::string gpu_uuid, slot, role, job, model, export_kind;
  int global_rank = 0, dp = 0, pp = 0, tp = 0;
  std::optional<int> ep;
  std::uint64_t generation = 1, tensors = 0, bytes = 0;
  friend bool operator==(const DescribeReply&, const DescribeReply&) = default;
};

struct LeaseStatus {
  int pid = 0;
  std::string name;
  double age_s = 0;
  std::optional<std::uint64_t> generation = std::nullopt;  // an older one than is served now
  friend bool operator==(const LeaseStatus&, const LeaseStatus&) = default;
};

// One daemon as `preload status --json` prints it.
struct DaemonStatus {
  std::string gpu_uuid, slot, role, job;
  int pid = 0;
  int global_rank = 0;
  DaemonState state = DaemonState::kLoading;
  std::string model;
  std::string key;           // empty while loading
  std::string checkpoint;    // evidence.checkpoint
  std::string receipt_json;  // evidence.receipt; empty: none
  std::uint64_t bytes = 0;   // to be loaded, or loaded
  std::uint64_t overhead_bytes = 0;
  std::uint64_t generation = 0;
  Progress progress;        // of what is read, which may differ from what is held
  std::string export_kind;  // "host", "vmm", "cuda-ipc"; empty while loading
  std::string version;      // the daemon's
  int local_size = 1;
  std::string engine_caches;  // where a warm-up has filled engines' caches; empty: none
  std::string code, text;     // of a failure
  std::vector<LeaseStatus> leases;
  Counters counters;
  friend bool operator==(const DaemonStatus&, const DaemonStatus&) = default;
};

struct ReleaseRequest {
  bool after_leases = true;  // false: now, whatever is leased
  friend bool operator==(const ReleaseRequest&, const ReleaseRequest&) = default;
};
struct ReleaseReply {
  DaemonState state = DaemonState::kReleased;
  std::uint64_t leases = 0;  // that remain
  friend bool operator==(const ReleaseReply&, const ReleaseReply&) = default;
};

struct StopRequest {
  bool job = false;  // the whole job, not this daemon alone
  friend bool operator==(const StopRequest&, const StopRequest&) = default;
};
struct StopReply {
  int pid = 0;
  friend bool operator==(const StopReply&, const StopReply&) = default;
};

struct FieldMismatch {
  std::string expected;
  std::optional<std::string> served;  // unset: the daemon's key has no such field
  friend bool operator==(const FieldMismatch&, const FieldMismatch&) = default;
};
struct ErrorReply {
  Errc code = Errc::kInternal;
  std::string message;
  std::map<std::string, FieldMismatch> fields;
  std::optional<int> retry_after_ms;
  std::optional<DaemonState> state;
  friend bool operator==(const ErrorReply&, const ErrorReply&) = default;
};

std::string to_json(const HelloRequest& message);
std::string to_json(const HelloReply& message);
std::string to_json(const AttachRequest& message);
std::string to_json(const AttachReply& message);
std::string to_json(const DescribeReply& message);
std::string to_json(const DaemonStatus& message);
std::string to_json(const ReleaseRequest& message);
std::string to_json(const ReleaseReply& message);
std::string to_json(const StopRequest& message);
std::string to_json(const StopReply& message);
std::string to_json(const ErrorReply& message);

HelloRequest hello_request_from_json(std::string_view text);
HelloReply hello_reply_from_json(std::string_view text);
AttachRequest attach_request_from_json(std::string_view text);
AttachReply attach_reply_from_json(std::string_view text);
DescribeReply describe_reply_from_json(std::string_view text);
DaemonStatus daemon_status_from_json(std::string_view text);
ReleaseRequest release_request_from_json(std::string_view text);
ReleaseReply release_reply_from_json(std::string_view text);
StopRequest stop_request_from_json(std::string_view text);
StopReply stop_reply_from_json(std::string_view text);
ErrorReply error_reply_from_json(std::string_view text);

}  // namespace preload::wire
