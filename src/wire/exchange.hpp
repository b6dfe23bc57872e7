// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "base/fd.hpp"
#include "wire/artifact_messages.hpp"
#include "wire/frame.hpp"
#include "wire/messages.hpp"
#include "wire/residency_messages.hpp"

namespace preload::wire {

// The refusal that a peer sent: its code and text as an Error, the rest beside it.
class PeerError : public Error {
 public:
  explicit PeerError(ErrorReply reply);
  const ErrorReply& reply() const noexcept { return reply_; }

 private:
  ErrorReply reply_;
};

// One request and its reply on a connected socket, both within `timeout_ms`. Throws PeerError when
// the peer refuses, Error(kProtocol) when it answers something else, Error(kUnavailable) when it
// is gone or silent.
Frame exchange(int socket, Type type, std::string_view body, const std::vector<int>& fds,
               int timeout_ms);

HelloReply call_hello(int socket, const HelloRequest& request, int timeout_ms);
DescribeReply call_describe(int socket, int timeout_ms);
DaemonStatus call_status(int socket, int timeout_ms);
ReleaseReply call_release(int socket, const ReleaseRequest& request, int timeout_ms);
StopReply call_stop(int socket, const StopRequest& request, int timeout_ms);
// `content` is a sealed memfd.
PutArtifactReply call_put_artifact(int socket, const PutArtifactRequest& request, int content,
                                   int timeout_ms);
struct FoundArtifact {
  GetArtifactReply reply;
  Fd content;  // where it was found
};
FoundArtifact call_get_artifact(int socket, const GetArtifactRequest& request, int timeout_ms);

// What an attach brings: everything, or an exception and no descriptor.
struct Attached {
  AttachReply reply;
  Fd manifest;
  std::vector<Fd> slab_fds;  // one per slab; empty Fd where the slab's handle is in the reply
};
// `lease` is the read end of the lease pipe; the caller keeps the write end and may close `lease`
// afterwards.
Attached call_attach(int socket, const AttachRequest& request, int lease, int timeout_ms);

// What a residency's holder sends along; for kDrain and an answer without descriptors, none.
struct PackageAnswer {
  PackageReply reply;
  std::vector<Fd> fds;
};
PackageAnswer call_adopt(int socket, const AdoptRequest& request, int timeout_ms);
PackageAnswer call_handover(int socket, const HandoverRequest& request, int timeout_ms);
KeeperStatus call_keeper_status(int socket, int timeout_ms);
void call_withdraw(int socket, const std::string& place, int timeout_ms);

}  // namespace preload::wire
