// SPDX-License-Identifier: Apache-2.0
#include "serve/handover.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/log.hpp"
#include "serve/artifact_package.hpp"
#include "serve/package.hpp"

namespace preload {
namespace {

// Requests are a few hundred bytes: what is half sent for longer is a client that hangs.
constexpr auto kHalfDone = std::chrono::milliseconds(500);

}  // namespace

void Handover::handle(Session& session, const wire::HandoverRequest& request) {
  using Step = wire::HandoverRequest::Step;
  if (request.step == Step::kPrepare) return prepare(session);
  check_successor(session);
  switch (request.step) {
    case Step::kPrepare:
      return;
    case Step::kDrain: {
      if (!holding_.is_draining()) {
        drained_ = true;
        log::info(fmt::format("pid {} is to succeed {} and drains it: no more attaches",
                              session.peer().pid, holding_.place()));
      }
      holding_.drain(true);
      wire::PackageReply reply;
      reply.open_leases = holding_.leases().size();
      return session.answer(wire::Type::kHandover, wire::to_json(reply));
    }
    case Step::kCommit:
      // New connections wait in the backlog for whoever accepts next.
      listener_ = loop_.stop_listening();
      answer_by_ = Clock::now() + kHalfDone;
      return;
    case Step::kDone:
      if (!listener_) throw Error(Errc::kProtocol, "handover: done comes after commit");
      log::info(fmt::format("pid {} serves {} now", session.peer().pid, holding_.place()));
      done_ = true;
      return session.answer(wire::Type::kHandover, wire::to_json(wire::PackageReply{}));
  }
}

void Handover::check_successor(const Session& session) const {
  if (session.fd() != successor_) throw Error(Errc::kProtocol, "handover: prepare comes first");
}

void Handover::prepare(Session& session) {
  if (successor_ >= 0 && successor_ != session.fd())
    throw Error(Errc::kBusy, fmt::format("{} is being handed over already", holding_.place()));
  if (lock_ < 0 || holding_.state() == wire::DaemonState::kLoading)
    throw Error(Errc::kBusy,
                fmt::format("{} cannot be handed over before it is READY", holding_.place()));
  PackageView view = holding_.package_view();
  view.artifacts = &artifacts_;
  view.lock = lock_;
  std::vector<Fd> fds = pack(view);
  packed_puts_ = artifacts_.puts();
  successor_ = session.fd();
  session.pin();
  wire::PackageReply reply;
  reply.fds = fds.size();
  session.answer_owned(wire::Type::kHandover, wire::to_json(reply), std::move(fds));
}

void Handover::turn() {
  if (!answer_by_) return;
  if (loop_.busy_sessions(successor_) > 0 && Clock::now() < *answer_by_) return;
  answer_by_.reset();
  answer_commit();
}

// Leases and young artifacts, so many as the answer names; the listening socket; connections of
// clients.
void Handover::answer_commit() {
  std::vector<Fd> fds;
  wire::PackageReply reply;
  reply.leases = pack_leases(holding_.leases(), fds);
  const std::vector<const Artifact*> young = artifacts_.put_since(packed_puts_);
  reply.artifacts = young.size();
  pack_artifacts(young, fds);
  fds.push_back(duplicate(listener_.get()));
  for (Fd& socket : loop_.take_idle_sockets()) fds.push_back(std::move(socket));
  reply.fds = fds.size();
  loop_.answer(successor_, wire::Type::kHandover, wire::to_json(reply), std::move(fds));
}

void Handover::closed(int fd) {
  if (fd != successor_ || done_) return;
  successor_ = -1;
  answer_by_.reset();
  log::warn(fmt::format("the successor of {} ended before it served: this daemon goes on",
                        holding_.place()));
  if (listener_) loop_.listen(std::move(listener_));
  if (std::exchange(drained_, false)) holding_.drain(false);
}

}  // namespace preload
