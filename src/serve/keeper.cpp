// SPDX-License-Identifier: Apache-2.0
#include "serve/keeper.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"
#include "serve/connect.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

// A daemon that has just begun to serve what is asked for here is found at its socket by then.
constexpr int kRetryAtDaemonMs = 20;

std::string text_of(const Holding& holding) {
  return fmt::format("{} ({}, {} open leases)", holding.place(),
                     format_bytes(bytes_of(holding.residency())), holding.leases().size());
}

}  // namespace

Keeper::Keeper(const SocketDir& directory, KeeperOptions options)
    : directory_(directory),
      options_(std::move(options)),
      lock_(take_named_lock(directory, std::string(kKeeperLock), "a keeper")),
      loop_(*this, options_.sessions, true),
      upkeep_(directory, {std::string(kKeeperSocket), std::string(kKeeperLock), ""}, lock_.get()) {
  loop_.listen(listen_at(directory_, std::string(kKeeperSocket)));
}

Keeper::~Keeper() { ::unlinkat(directory_.fd(), std::string(kKeeperSocket).c_str(), 0); }

int Keeper::run(const Fd& signals) {
  if (signals) {
    loop_.watch(signals.get(), EPOLLIN, [&](std::uint32_t) {
      signalfd_siginfo info{};
      if (::read(signals.get(), &info, sizeof info) != sizeof info) return;
      log::info(fmt::format("ended by signal {}", info.ssi_signo));
      end_ = 128 + static_cast<int>(info.ssi_signo);
    });
  }
  while (!end_) {
    const auto deadline = next_deadline();
    loop_.turn(deadline ? std::min(*deadline, upkeep_.next()) : upkeep_.next());
    upkeep_.turn([this] {
      Fd listener = listen_at(directory_, std::string(kKeeperSocket));
      loop_.stop_listening();
      loop_.listen(std::move(listener));
    });
    free_overdue();
    if (!end_ && is_idle()) {
      log::info(fmt::format("nothing was kept for {:.0f} s: the keeper ends (--stay keeps it)",
                            options_.idle.count()));
      end_ = 0;
    }
  }
  for (const auto& [stem, kept] : kept_)
    log::warn(
        fmt::format("the keeper ends and lets go of {}: {}", text_of(kept->holding),
                    kept->owner < 0 ? "no daemon has it any more" : "it ends with its daemon now"));
  if (signals) loop_.unwatch(signals.get());
  return *end_;
}

bool Keeper::is_idle() const {
  return !options_.stay && kept_.empty() && Clock::now() >= empty_since_ + options_.idle;
}

std::optional<Keeper::Clock::time_point> Keeper::next_deadline() const {
  std::optional<Clock::time_point> next;
  const auto consider = [&](Clock::time_point since, std::chrono::duration<double> wait) {
    const auto time = since + std::chrono::ceil<Clock::duration>(wait);
    if (!next || time < *next) next = time;
  };
  if (!options_.stay && kept_.empty()) consider(empty_since_, options_.idle);
  for (const auto& [stem, kept] : kept_)
    if (options_.orphan && kept->orphaned_since && kept->holding.leases().size() == 0)
      consider(*kept->orphaned_since, *options_.orphan);
  return next;
}

void Keeper::free_overdue() {
  std::vector<std::string> overdue;
  for (const auto& [stem, kept] : kept_) {
    if (kept->holding.state() == wire::DaemonState::kReleased) overdue.push_back(stem);
    if (!options_.orphan || !kept->orphaned_since || kept->holding.leases().size() > 0) continue;
    if (Clock::now() >= *kept->orphaned_since + *options_.orphan) overdue.push_back(stem);
  }
  for (const std::string& stem : overdue)
    free(stem, "neither a daemon nor a client has it any more");
}

void Keeper::free(const std::string& stem, std::string_view why) {
  const auto it = kept_.find(stem);
  if (it == kept_.end()) return;
  log::info(fmt::format("let go of {}: {}", text_of(it->second->holding), why));
  // Answers under way may name its descriptors.
  loop_.drop_where([&](const Session& session) {
    const auto asked = asked_about_.find(session.fd());
    return asked != asked_about_.end() && asked->second == stem && session.has_fds_to_send();
  });
  loop_.unwatch(it->second->holding.lease_epoll_fd());
  kept_.erase(it);
  if (kept_.empty()) empty_since_ = Clock::now();
}

void Keeper::orphan(Kept& kept) {
  kept.owner = -1;
  kept.orphaned_since = Clock::now();
  kept.deposited_puts = kept.artifacts.puts();
  kept.holding.set_orphaned(true);
  log::warn(fmt::format("the daemon of {} is gone: its weights are kept for a successor",
                        text_of(kept.holding)));
}

void Keeper::closed(int fd) {
  if (intakes_.erase(fd) > 0)
    log::warn("a daemon ended while it deposited: nothing of that is kept");
  asked_about_.erase(fd);
  for (const auto& [stem, kept] : kept_)
    if (kept->owner == fd) orphan(*kept);
}

// The kernel closes a dead daemon's descriptors one by one: when its lock is free, it is gone,
// though its connection may not show it yet, nor all that it sent have been read.
Keeper::Kept* Keeper::find(const std::string& stem) {
  auto it = kept_.find(stem);
  if (it == kept_.end()) return nullptr;
  if (it->second->owner < 0 || lock_is_held(directory_, stem + ".lock")) return it->second.get();
  loop_.finish(it->second->owner);
  it = kept_.find(stem);  // its last word may have been to withdraw
  return it == kept_.end() ? nullptr : it->second.get();
}

Keeper::Kept& Keeper::kept_for(const Session& session) {
  const auto asked = asked_about_.find(session.fd());
  if (asked == asked_about_.end())
    throw Error(Errc::kProtocol, "a keeper must be told in hello which place is meant");
  Kept* const kept = find(asked->second);
  if (kept == nullptr) throw Error(Errc::kUnavailable, "the keeper has nothing of that place");
  return *kept;
}

Keeper::Kept& Keeper::owned_by(const Session& session) {
  for (const auto& [stem, kept] : kept_)
    if (kept->owner == session.fd()) return *kept;
  throw Error(Errc::kProtocol, "this connection has deposited nothing, or another replaced it");
}

void Keeper::handle(Session& session, wire::Frame frame) {
  const bool brings_fds = frame.type == wire::Type::kAttach || frame.type == wire::Type::kDeposit ||
                          frame.type == wire::Type::kPutArtifact;
  if (!brings_fds && !frame.fds.empty())
    throw Error(Errc::kProtocol, "only attach, deposit and put_artifact come with descriptors");
  try {
    switch (frame.type) {
      case wire::Type::kHello:
        return hello(session, wire::hello_request_from_json(frame.body));
      case wire::Type::kDeposit:
        return deposit(session, std::move(frame));
      case wire::Type::kAdopt:
        return adopt(session, wire::adopt_request_from_json(frame.body));
      case wire::Type::kAttach:
        return attach(session, std::move(frame));
      case wire::Type::kPutArtifact:
        return put_artifact(session, std::move(frame));
      case wire::Type::kGetArtifact:
        return get_artifact(session, wire::get_artifact_request_from_json(frame.body));
      case wire::Type::kDescribe:
        return session.answer(frame.type, wire::to_json(kept_for(session).holding.describe()));
      case wire::Type::kStatus:
        if (asked_about_.contains(session.fd()))
          return session.answer(frame.type, wire::to_json(kept_for(session).holding.status()));
        return session.answer(frame.type, wire::to_json(status()));
      case wire::Type::kRelease: {
        const auto request = wire::release_request_from_json(frame.body);
        const auto reply = kept_for(session).holding.release(request, session.peer());
        return session.answer(frame.type, wire::to_json(reply));
      }
      case wire::Type::kStop:
        log::info(fmt::format("pid {} asked the keeper to stop", session.peer().pid));
        end_ = 0;
        return session.answer(frame.type, wire::to_json(wire::StopReply{::getpid()}));
      case wire::Type::kError:
        throw Error(Errc::kProtocol, "an error is an answer, not a request");
      default:
        refuse(session,
               Error(Errc::kProtocol, fmt::format("a keeper does not serve message type {}",
                                                  static_cast<int>(frame.type))));
    }
  } catch (const wire::PeerError& refusal) {
    refuse(session, refusal);
  } catch (const Error& error) {
    if (error.code() == Errc::kProtocol) throw;
    refuse(session, error);
  }
}

void Keeper::hello(Session& session, const wire::HelloRequest& request) {
  if (!request.place) {
    asked_about_.erase(session.fd());
    session.answer(wire::Type::kHello,
                   wire::to_json(wire::HelloReply{PRELOAD_VERSION, ::getpid(), "", "", "",
                                                  wire::DaemonState::kReady}));
    return;
  }
  asked_about_[session.fd()] = *request.place;
  session.answer(wire::Type::kHello, wire::to_json(kept_for(session).holding.hello()));
}

void Keeper::attach(Session& session, wire::Frame frame) {
  const auto request = wire::attach_request_from_json(frame.body);
  Fd pipe = take_lease_pipe(std::move(frame.fds));
  Kept& kept = orphan_for(session);
  std::vector<int> fds;
  const auto reply = kept.holding.attach(request, std::move(pipe), session.peer(), fds);
  session.answer(frame.type, wire::to_json(reply), fds);
}

Keeper::Kept& Keeper::orphan_for(const Session& session) {
  Kept& kept = kept_for(session);
  if (kept.owner < 0) return kept;
  wire::ErrorReply reply;
  reply.code = Errc::kUnavailable;
  reply.message =
      fmt::format("{} is served by a daemon: attach at its own socket", kept.holding.place());
  reply.retry_after_ms = kRetryAtDaemonMs;
  throw wire::PeerError(std::move(reply));
}

wire::KeeperStatus Keeper::status() const {
  wire::KeeperStatus status{::getpid(), PRELOAD_VERSION, options_.stay, {}};
  for (const auto& [stem, kept] : kept_) {
    status.deposits.push_back(kept->holding.status());
    status.deposits.back().receipt_json.clear();  // all of them would not fit into one frame
  }
  return status;
}

void Keeper::deposit(Session& session, wire::Frame frame) {
  if (const auto it = intakes_.find(session.fd()); it != intakes_.end()) {
    Intake& intake = it->second;
    if (frame.body != wire::more_fds_body(intake.fds.size()) || frame.fds.empty())
      throw Error(Errc::kProtocol, "a deposit does not go on where its last message ended");
    std::ranges::move(frame.fds, std::back_inserter(intake.fds));
    take_package(session, std::move(intake));
    return;
  }
  const auto request = wire::deposit_request_from_json(frame.body);
  switch (request.step) {
    case wire::DepositRequest::Step::kPackage:
      session.pin();
      return take_package(session, {static_cast<std::size_t>(request.fds), std::move(frame.fds)});
    case wire::DepositRequest::Step::kLease:
      return take_lease(session, request, std::move(frame));
    case wire::DepositRequest::Step::kArtifact:
      return take_artifact(session, request, std::move(frame));
    case wire::DepositRequest::Step::kForget:
      for (const std::string& key : request.keys) owned_by(session).artifacts.forget(key);
      return session.answer(wire::Type::kDeposit, wire::to_json(wire::DepositReply{}));
    case wire::DepositRequest::Step::kDrain:
      owned_by(session).holding.drain(true);
      return session.answer(wire::Type::kDeposit, wire::to_json(wire::DepositReply{}));
    case wire::DepositRequest::Step::kWithdraw:
      return withdraw(session, request);
  }
}

// Whole or not at all: until the last descriptor is here nothing is kept.
void Keeper::take_package(Session& session, Intake intake) {
  if (intake.fds.size() > intake.expected)
    throw Error(Errc::kProtocol, "a deposit came with more descriptors than it announced");
  if (intake.fds.size() < intake.expected) {
    intakes_[session.fd()] = std::move(intake);
    return;
  }
  std::vector<Fd> fds = std::move(intake.fds);
  intakes_.erase(session.fd());
  Package package = unpack(std::move(fds));
  if (package.generations.empty() || package.lock)  // as a daemon hands over what it has released
    throw Error(Errc::kProtocol, "papers: a deposit has a generation at least, and no lock");
  Residency residency = std::move(package.generations.front());
  package.generations.erase(package.generations.begin());
  const std::string stem = residency.endpoint.stem();
  const std::size_t room =
      lease_capacity(options_.sessions.max_connections, residency.slabs.size());
  auto fresh = std::make_unique<Kept>(std::move(residency), room);
  fresh->owner = session.fd();
  fresh->holding.take_over(std::move(package.generations), std::move(package.leases));
  for (Artifact& artifact : package.artifacts) fresh->artifacts.put(std::move(artifact));
  // Taken with the keeper, and unknown to the daemon.
  wire::DepositReply reply;
  std::vector<Fd> missing;
  if (const auto it = kept_.find(stem); it != kept_.end()) {
    reply.leases = fresh->holding.take_missing(it->second->holding, missing);
    reply.artifacts = take_missing(*fresh, *it->second, missing);
    free(stem, "another deposit took its place");
  }
  if (package.draining) fresh->holding.drain(true);
  Holding& holding = fresh->holding;
  kept_[stem] = std::move(fresh);
  loop_.watch(holding.lease_epoll_fd(), EPOLLIN,
              [&holding](std::uint32_t) { holding.end_leases(); });
  log::info(fmt::format("pid {} deposited {}, generation {}", session.peer().pid, text_of(holding),
                        holding.residency().generation));
  session.answer_owned(wire::Type::kDeposit, wire::to_json(reply), std::move(missing));
}

void Keeper::take_lease(Session& session, const wire::DepositRequest& request, wire::Frame frame) {
  if (frame.fds.size() != 1) throw Error(Errc::kProtocol, "a lease comes with one descriptor");
  std::vector<Lease> leases;
  leases.push_back(unpack_lease(request.lease, std::move(frame.fds.front())));
  owned_by(session).holding.take_over({}, std::move(leases));
  session.answer(wire::Type::kDeposit, wire::to_json(wire::DepositReply{}));
}

void Keeper::withdraw(Session& session, const wire::DepositRequest& request) {
  const std::string stem =
      request.place ? *request.place : owned_by(session).holding.endpoint().stem();
  free(stem, fmt::format("pid {} withdrew it", session.peer().pid));
  session.answer(wire::Type::kDeposit, wire::to_json(wire::DepositReply{}));
}

void Keeper::adopt(Session& session, const wire::AdoptRequest& request) {
  Kept* const kept = find(request.place);
  if (kept == nullptr) throw Error(Errc::kUnavailable, "the keeper has nothing of that place");
  if (kept->owner >= 0)
    throw Error(Errc::kBusy, fmt::format("{} is served by a daemon: it is not to be adopted",
                                         kept->holding.place()));
  PackageView view = kept->holding.package_view();
  view.artifacts = &kept->artifacts;
  std::vector<Fd> fds = pack(view);
  wire::PackageReply reply;
  reply.fds = fds.size();
  session.answer_owned(wire::Type::kAdopt, wire::to_json(reply), std::move(fds));
}

}  // namespace preload
