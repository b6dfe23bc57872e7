// SPDX-License-Identifier: Apache-2.0
#include "wire/exchange.hpp"

#include <fmt/format.h>

#include <chrono>

namespace preload::wire {
namespace {

using Clock = std::chrono::steady_clock;

int left_ms(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return left.count() > 0 ? static_cast<int>(left.count()) : 0;
}

Frame expect_reply(int socket, Type type, int timeout_ms) {
  Frame frame = receive_frame(socket, timeout_ms);
  if (frame.type == Type::kError) throw PeerError(error_reply_from_json(frame.body));
  if (frame.type != type)
    throw Error(Errc::kProtocol, fmt::format("the daemon answered message type {} with type {}",
                                             static_cast<int>(type), static_cast<int>(frame.type)));
  return frame;
}

// The descriptors that an answer announced: its own, and those of the frames that follow.
std::vector<Fd> receive_fds(int socket, Frame frame, std::size_t expected,
                            Clock::time_point deadline) {
  std::vector<Fd> fds = std::move(frame.fds);
  while (fds.size() < expected) {
    Frame more = expect_reply(socket, frame.type, left_ms(deadline));
    if (more.fds.empty()) break;  // a peer that sends none would keep us here
    for (Fd& fd : more.fds) fds.push_back(std::move(fd));
  }
  if (fds.size() != expected)
    throw Error(Errc::kProtocol,
                fmt::format("the daemon sent {} descriptors instead of {}", fds.size(), expected));
  return fds;
}

PackageAnswer call_for_package(int socket, Type type, std::string_view body, int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  Frame frame = exchange(socket, type, body, {}, timeout_ms);
  PackageAnswer answer;
  answer.reply = package_reply_from_json(frame.body);
  const auto expected = static_cast<std::size_t>(answer.reply.fds);
  answer.fds = receive_fds(socket, std::move(frame), expected, deadline);
  return answer;
}

}  // namespace

PackageAnswer call_adopt(int socket, const AdoptRequest& request, int timeout_ms) {
  return call_for_package(socket, Type::kAdopt, to_json(request), timeout_ms);
}

PackageAnswer call_handover(int socket, const HandoverRequest& request, int timeout_ms) {
  return call_for_package(socket, Type::kHandover, to_json(request), timeout_ms);
}

KeeperStatus call_keeper_status(int socket, int timeout_ms) {
  return keeper_status_from_json(exchange(socket, Type::kStatus, "{}", {}, timeout_ms).body);
}

void call_withdraw(int socket, const std::string& place, int timeout_ms) {
  DepositRequest request;
  request.step = DepositRequest::Step::kWithdraw;
  request.place = place;
  exchange(socket, Type::kDeposit, to_json(request), {}, timeout_ms);
}

PeerError::PeerError(ErrorReply reply)
    : Error(reply.code, reply.message), reply_(std::move(reply)) {}

Frame exchange(int socket, Type type, std::string_view body, const std::vector<int>& fds,
               int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  try {
    send_frame(socket, type, body, fds, timeout_ms);
  } catch (const Error& error) {
    // A daemon that refuses before it has read everything closes: its reason may still be there.
    if (error.code() != Errc::kUnavailable) throw;
    try {
      expect_reply(socket, type, 0);
    } catch (const PeerError&) {
      throw;
    } catch (const Error&) {
      // no reason was left: the failed send says it best
    }
    throw;
  }
  return expect_reply(socket, type, left_ms(deadline));
}

HelloReply call_hello(int socket, const HelloRequest& request, int timeout_ms) {
  return hello_reply_from_json(
      exchange(socket, Type::kHello, to_json(request), {}, timeout_ms).body);
}

DescribeReply call_describe(int socket, int timeout_ms) {
  return describe_reply_from_json(exchange(socket, Type::kDescribe, "{}", {}, timeout_ms).body);
}

DaemonStatus call_status(int socket, int timeout_ms) {
  return daemon_status_from_json(exchange(socket, Type::kStatus, "{}", {}, timeout_ms).body);
}

ReleaseReply call_release(int socket, const ReleaseRequest& request, int timeout_ms) {
  return release_reply_from_json(
      exchange(socket, Type::kRelease, to_json(request), {}, timeout_ms).body);
}

StopReply call_stop(int socket, const StopRequest& request, int timeout_ms) {
  return stop_reply_from_json(exchange(socket, Type::kStop, to_json(request), {}, timeout_ms).body);
}

PutArtifactReply call_put_artifact(int socket, const PutArtifactRequest& request, int content,
                                   int timeout_ms) {
  return put_artifact_reply_from_json(
      exchange(socket, Type::kPutArtifact, to_json(request), {content}, timeout_ms).body);
}

FoundArtifact call_get_artifact(int socket, const GetArtifactRequest& request, int timeout_ms) {
  Frame frame = exchange(socket, Type::kGetArtifact, to_json(request), {}, timeout_ms);
  FoundArtifact found{get_artifact_reply_from_json(frame.body), {}};
  if (frame.fds.size() != (found.reply.found ? 1 : 0))
    throw Error(Errc::kProtocol, fmt::format("the daemon sent {} descriptors with artifact '{}'",
                                             frame.fds.size(), request.key));
  if (found.reply.found) found.content = std::move(frame.fds.front());
  return found;
}

Attached call_attach(int socket, const AttachRequest& request, int lease, int timeout_ms) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  Frame frame = exchange(socket, Type::kAttach, to_json(request), {lease}, timeout_ms);
  Attached attached;
  attached.reply = attach_reply_from_json(frame.body);
  const std::size_t expected = attached.reply.fd_count();
  std::vector<Fd> fds = receive_fds(socket, std::move(frame), expected, deadline);
  attached.manifest = std::move(fds.front());
  std::size_t next = 1;
  for (const SlabInfo& slab : attached.reply.slabs)
    attached.slab_fds.push_back(slab.kind == kCudaIpcKind ? Fd() : std::move(fds[next++]));
  return attached;
}

}  // namespace preload::wire
