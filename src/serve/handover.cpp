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
constexpr auto kLookAgain = std::chrono::milliseconds(50);

}  // namespace

void Handover::handle(Session& session, const wire::HandoverRequest& request) {
  using Step = wire::HandoverRequest::Step;
  if (request.step == Step::kPrepare) return prepare(session);
  check_successor(session);
  switch (request.step) {
    case Step::kPrepare:
      return;
    case Step::kDrain: {
      // What was draining already is not this successor's to undo.
      if (holding_.drain_held()) {
        drained_ = true;
        log::info(fmt::format("pid {} is to succeed {} and drains it: no more attaches",
                              session.peer().pid, holding_.place()));
      }
      wire::PackageReply reply;
      reply.open_leases = holding_.leases().size();
      return session.answer(wire::Type::kHandover, wire::to_json(reply));
    }
    case Step::kFree:
      if (holding_.leases().size() > 0)
        throw Error(Errc::kBusy, fmt::format("{} is leased by {} clients: it is not to be freed",
                                             holding_.place(), holding_.leases().size()));
      holding_.drain(true);
      return session.answer(wire::Type::kHandover, wire::to_json(wire::PackageReply{}));
    case Step::kCommit:
      // New connections wait in the backlog for whoever accepts next.
      if (!committed_) listener_ = loop_.stop_listening();
      committed_ = true;
      answer_by_ = Clock::now() + kHalfDone;
      return;
    case Step::kDone:
      if (!committed_) throw Error(Errc::kProtocol, "handover: done comes after commit");
      log::info(fmt::format("pid {} serves {} now", session.peer().pid, holding_.place()));
      done_ = true;
      return session.answer(wire::Type::kHandover, wire::to_json(wire::PackageReply{}));
  }
}

void Handover::check_successor(const Session& session) const {
  if (session.fd() != successor_) throw Error(Errc::kProtocol, "handover: prepare comes first");
}

void Handover::prepare(Session& session) {
  if (is_in_doubt() || (successor_ >= 0 && successor_ != session.fd()))
    throw Error(Errc::kBusy, fmt::format("{} is being handed over already", holding_.place()));
  if (lock_ < 0 || holding_.state() == wire::DaemonState::kLoading)
    throw Error(Errc::kBusy,
                fmt::format("{} cannot be handed over before it is READY", holding_.place()));
  PackageView view = holding_.package_view();
  view.artifacts = &artifacts_;
  view.lock = lock_;
  std::vector<Fd> fds = pack(view);
  place_.expect_successor();
  packed_puts_ = artifacts_.puts();
  successor_ = session.fd();
  session.pin();
  wire::PackageReply reply;
  reply.fds = fds.size();
  session.answer_owned(wire::Type::kHandover, wire::to_json(reply), std::move(fds));
}

void Handover::turn() {
  if (look_again_ && Clock::now() >= *look_again_) settle_doubt();
  if (!answer_by_) return;
  if (loop_.busy_sessions(successor_) > 0 && Clock::now() < *answer_by_) return;
  answer_by_.reset();
  answer_commit();
}

// Leases and young artifacts, so many as the answer names; the listening socket; connections of
// clients. A successor that is sent less than it needs would serve without knowing its leases.
void Handover::answer_commit() try {
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
} catch (const Error& error) {
  log::error(fmt::format("{} cannot be handed over: {}", holding_.place(), error.what()));
  loop_.drop(successor_);
}

void Handover::closed(int fd) {
  if (fd != successor_ || done_) return;
  successor_ = -1;
  answer_by_.reset();
  settle_doubt();
}

// The connection to a successor was lost, whoever closed it. While the successor lives, it may have
// given up on this daemon's answer and be about to bind: only when it has ended, and left the place
// as it was, is the place this daemon's again.
void Handover::settle_doubt() {
  const bool may_serve_yet = place_.may_have_successor();
  if (place_.is_anothers()) {  // looked at last: what is bound by now was so while it lived
    look_again_.reset();
    done_ = true;
    log::warn(fmt::format("{} was taken over while this daemon did not answer: it ends",
                          holding_.place()));
    return;
  }
  if (!committed_ && std::exchange(drained_, false)) holding_.drain(false);
  if (may_serve_yet) {
    look_again_ = Clock::now() + kLookAgain;
    return;
  }
  look_again_.reset();
  committed_ = false;
  log::warn(fmt::format("the successor of {} ended before it served: this daemon goes on",
                        holding_.place()));
  if (listener_) loop_.listen(std::move(listener_));
  if (std::exchange(drained_, false)) holding_.drain(false);
}

}  // namespace preload
