// SPDX-License-Identifier: Apache-2.0
#include "serve/server.hpp"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <mutex>
#include <optional>
#include <utility>

#include "base/counted.hpp"
#include "base/log.hpp"
#include "serve/artifact_store.hpp"
#include "serve/connect.hpp"
#include "serve/descriptor_budget.hpp"
#include "serve/handover.hpp"
#include "serve/held_place.hpp"
#include "serve/holding.hpp"
#include "serve/keeper.hpp"
#include "serve/session_loop.hpp"
#include "serve/upkeep.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

using Clock = SessionLoop::Clock;

// A keeper answers at once; one that hangs must not keep a daemon from ending.
constexpr auto kLastWord = std::chrono::seconds(2);

}  // namespace

struct Server::State final : SessionHandler {
  State(const SocketDir& dir, Residency residency, ServerOptions options, Inheritance inheritance)
      : directory(dir),
        max_leases(lease_capacity(options.sessions.max_connections, residency.slabs.size())),
        holding(std::move(residency), max_leases),
        keeper_use(options.keeper),
        predecessor(options.predecessor),
        artifacts({.count = artifact_capacity()}),
        loop(*this, options.sessions, false),
        place(dir, holding.endpoint()),
        upkeep(dir,
               {holding.endpoint().socket_name(), holding.endpoint().lock_name(),
                holding.endpoint().state_name()},
               options.lock),
        handover(loop, holding, artifacts, place, options.lock) {
    holding.take_over(std::move(inheritance.older), std::move(inheritance.leases));
    inherit(std::move(inheritance.artifacts));
    if (predecessor == nullptr) bind();
    loop.watch(holding.lease_epoll_fd(), EPOLLIN, [this](std::uint32_t) { holding.end_leases(); });
    holding.on_freed([this] { after_release(); });
    if (keeper_use == KeeperUse::kOff) return;
    keeper.emplace(directory, loop, holding, artifacts);
    holding.on_lease([this](const Lease& lease) { keeper->add(lease); });
    holding.on_drain([this] { keeper->drain(); });
  }

  void bind(Listeners present = Listeners::kRefuse) {
    loop.listen(listen_at(directory, holding.endpoint().socket_name(), present));
    place.take();
  }

  void request_end(ServeEnd end) {
    {
      const std::lock_guard lock(mutex);
      if (!pending_end) pending_end = std::move(end);
    }
    loop.wake();
  }

  void handle(Session& session, wire::Frame frame) override;
  void closed(int fd) override { handover.closed(fd); }
  void refused(std::string_view cause) override { holding.counters().refused(cause); }
  void turn_away(Session& session, const Error& error) {
    refused(wire_code(error.code()));
    refuse(session, error);
  }
  void handle_attach(Session& session, wire::Frame frame);
  void handle_put_artifact(Session& session, wire::Frame frame);
  void inherit(std::vector<Artifact> left);
  void handle_handover(Session& session, const wire::HandoverRequest& request);
  void handle_stop(Session& session, const wire::StopRequest& request);
  void after_release();
  std::optional<ServeEnd> take_wishes();
  void leave_place() noexcept;
  void begin();
  void turn();
  bool settle_with_keeper(Clock::time_point deadline);
  void withdraw_older();
  void leave(const ServeEnd& end);

  const SocketDir& directory;
  std::size_t max_leases;
  Holding holding;
  const KeeperUse keeper_use;
  Predecessor* predecessor;  // until its place was taken over
  ArtifactStore artifacts;
  SessionLoop loop;
  HeldPlace place;
  Upkeep upkeep;
  Handover handover;
  std::optional<KeeperLink> keeper;
  std::function<void()> on_admitted, on_job_stop, on_released;

  std::mutex mutex;  // guards what other threads leave for the loop
  bool admit_wish = false;
  bool admitted = false;
  std::optional<ServeEnd> pending_end;
  bool left_to_keeper = false;
};

std::optional<ServeEnd> Server::State::take_wishes() {
  bool admit = false;
  {
    const std::lock_guard lock(mutex);
    if (pending_end) {
      leave_place();
      return pending_end;
    }
    admit = std::exchange(admit_wish, false);
  }
  if (admit) begin();
  if (!handover.is_done()) return std::nullopt;
  place.give_up();
  return ServeEnd{ServeEnd::Cause::kHandedOver, 0, "a successor serves"};
}

// A successor that has committed may serve by now: the place is left to it.
void Server::State::leave_place() noexcept {
  if (handover.is_committed() || place.is_anothers()) place.give_up();
}

// A successor takes the place over first: from then on it is found where its predecessor was.
void Server::State::begin() {
  if (admitted) return;
  admitted = true;
  Predecessor* const before = std::exchange(predecessor, nullptr);
  TakenOver rest;
  if (before != nullptr) {
    rest = before->take_over();
    if (rest.listener) {
      loop.listen(std::move(rest.listener));
      place.take();
    } else {
      bind(Listeners::kReplace);
    }
    holding.take_over({}, std::move(rest.leases));
    inherit(std::move(rest.artifacts));
  }
  holding.admit();
  for (Fd& client : rest.clients) loop.take_over(std::move(client));
  if (before != nullptr) {
    if (keeper) {
      keeper->connect(true);
      settle_with_keeper(Clock::now() + kLastWord);
    }
    before->done();
  }
  if (!keeper) withdraw_older();
  if (on_admitted) on_admitted();
}

void Server::State::handle(Session& session, wire::Frame frame) {
  const bool takes_fd = frame.type == wire::Type::kAttach || frame.type == wire::Type::kPutArtifact;
  if (!takes_fd && !frame.fds.empty())
    throw Error(Errc::kProtocol, "only attach and put_artifact come with a descriptor");
  switch (frame.type) {
    case wire::Type::kHello:
      wire::hello_request_from_json(frame.body);
      session.answer(frame.type, wire::to_json(holding.hello()));
      return;
    case wire::Type::kAttach:
      handle_attach(session, std::move(frame));
      return;
    case wire::Type::kDescribe:
      session.answer(frame.type, wire::to_json(holding.describe()));
      return;
    case wire::Type::kStatus:
      session.answer(frame.type, wire::to_json(holding.status()));
      return;
    case wire::Type::kRelease: {
      const auto request = wire::release_request_from_json(frame.body);
      const auto reply = holding.release(request, session.peer());
      session.answer(frame.type, wire::to_json(reply));
      return;
    }
    case wire::Type::kPutArtifact:
      handle_put_artifact(session, std::move(frame));
      return;
    case wire::Type::kGetArtifact: {
      std::vector<Fd> fds;
      const auto reply = artifacts.get(wire::get_artifact_request_from_json(frame.body), fds);
      session.answer_owned(frame.type, wire::to_json(reply), std::move(fds));
      return;
    }
    case wire::Type::kStop:
      handle_stop(session, wire::stop_request_from_json(frame.body));
      return;
    case wire::Type::kHandover:
      handle_handover(session, wire::handover_request_from_json(frame.body));
      return;
    case wire::Type::kError:
      throw Error(Errc::kProtocol, "an error is an answer, not a request");
    default:
      refuse(session,
             Error(Errc::kProtocol, fmt::format("this daemon does not serve message type {}",
                                                static_cast<int>(frame.type))));
  }
}

void Server::State::handle_attach(Session& session, wire::Frame frame) {
  const auto begin = Clock::now();
  const auto request = wire::attach_request_from_json(frame.body);
  Fd pipe = take_lease_pipe(std::move(frame.fds));
  std::vector<int> fds;
  try {
    const auto reply = holding.attach(request, std::move(pipe), session.peer(), fds);
    session.answer(frame.type, wire::to_json(reply), fds);
    holding.counters().attaches.add(std::chrono::duration<double>(Clock::now() - begin).count());
  } catch (const wire::PeerError& refusal) {
    turn_away(session, refusal);
  }
}

void Server::State::handle_put_artifact(Session& session, wire::Frame frame) {
  Artifact artifact = take_artifact(std::move(frame));
  const std::string key = artifact.about.key;
  const auto result = artifacts.put(std::move(artifact));
  if (keeper) {
    keeper->forget(result.forgotten);
    keeper->add(*artifacts.find(key));
  }
  session.answer(wire::Type::kPutArtifact, wire::to_json(wire::PutArtifactReply{result.replaced}));
}

void Server::State::inherit(std::vector<Artifact> left) {
  if (left.empty()) return;
  log::info(fmt::format("{} that engines left at {} go on here", counted(left.size(), "artifact"),
                        holding.place()));
  for (Artifact& artifact : left) artifacts.put(std::move(artifact));
}

void Server::State::handle_handover(Session& session, const wire::HandoverRequest& request) {
  try {
    handover.handle(session, request);
  } catch (const Error& error) {
    if (error.code() == Errc::kProtocol) throw;
    log::warn(
        fmt::format("pid {} is not to succeed this daemon: {}", session.peer().pid, error.what()));
    turn_away(session, error);
  }
}

void Server::State::handle_stop(Session& session, const wire::StopRequest& request) {
  log::info(fmt::format("pid {} asked {} to stop", session.peer().pid,
                        request.job ? "the whole job" : "this daemon"));
  session.answer(wire::Type::kStop, wire::to_json(wire::StopReply{::getpid()}));
  if (request.job && on_job_stop) {
    on_job_stop();
    return;
  }
  request_end(
      {ServeEnd::Cause::kStopRequested, 0, fmt::format("pid {} asked for it", session.peer().pid)});
}

// An answer under way names descriptors that are closed by now; their numbers may soon mean
// something else.
void Server::State::after_release() {
  loop.drop_where([](const Session& session) { return session.has_fds_to_send(); });
  if (keeper) keeper->withdraw();
  if (on_released) on_released();
}

void Server::State::turn() {
  // A successor deposits when it serves: until then the place is its predecessor's.
  const bool may_deposit = keeper && predecessor == nullptr && !handover.is_in_doubt();
  if (may_deposit) keeper->connect();
  std::optional<Clock::time_point> next = may_deposit ? keeper->next_try() : std::nullopt;
  if (const auto deadline = handover.deadline(); deadline && (!next || *deadline < *next))
    next = deadline;
  const bool keeps_place = place.is_held() && !handover.is_committed();
  if (keeps_place && (!next || upkeep.next() < *next)) next = upkeep.next();
  loop.turn(next);
  handover.turn();
  if (!keeps_place || handover.is_committed() || handover.is_done()) return;
  upkeep.turn([this] {
    Fd listener = listen_at(directory, holding.endpoint().socket_name());
    loop.stop_listening();
    loop.listen(std::move(listener));
    place.take();
  });
}

// False when the keeper has not answered by then, or none is there.
bool Server::State::settle_with_keeper(Clock::time_point deadline) {
  while (keeper->is_connected() && !keeper->is_settled() && Clock::now() < deadline)
    loop.turn(deadline);
  return keeper->is_connected() && keeper->is_settled();
}

// What a keeper has of this place is from a daemon before this one, which does not deposit: nobody
// is to find it when this one is gone.
void Server::State::withdraw_older() {
  try {
    const Fd socket = connect_to(directory, std::string(kKeeperSocket), 0);
    constexpr auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(kLastWord);
    wire::call_withdraw(socket.get(), holding.endpoint().stem(), static_cast<int>(limit.count()));
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable)  // none runs
      log::warn(fmt::format("the keeper may have what was served at {} before: {}", holding.place(),
                            error.what()));
  }
}

// A stop that was asked for leaves nothing behind, nor does what was replaced: its successor has it
// deposited, or is not to be succeeded by it; a failure, or a signal that may be the first
// half of a restart, leaves the weights with the keeper.
void Server::State::leave(const ServeEnd& end) {
  const bool is_stop =
      end.cause == ServeEnd::Cause::kStopRequested || end.cause == ServeEnd::Cause::kJobStop;
  if (!keeper) return;
  const bool is_over = is_stop || end.cause == ServeEnd::Cause::kHandedOver;
  left_to_keeper = !is_over && keeper->is_connected();
  if (is_over) keeper->withdraw();
  settle_with_keeper(Clock::now() + kLastWord);
}

Server::Server(const SocketDir& directory, Residency residency, ServerOptions options,
               Inheritance inheritance)
    : state_(std::make_unique<State>(directory, std::move(residency), std::move(options),
                                     std::move(inheritance))) {}

Server::~Server() = default;

bool Server::gave_up_place() const noexcept { return state_->place.is_given_up(); }

void Server::admit() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->admit_wish = true;
  }
  state_->loop.wake();
}

void Server::end(ServeEnd end) { state_->request_end(std::move(end)); }

void Server::on_admitted(std::function<void()> callback) {
  state_->on_admitted = std::move(callback);
}

void Server::on_job_stop(std::function<void()> callback) {
  state_->on_job_stop = std::move(callback);
}

void Server::on_released(std::function<void()> callback) {
  state_->on_released = std::move(callback);
}

void Server::deposit(int timeout_ms) {
  if (!state_->keeper || state_->predecessor != nullptr) return;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  state_->keeper->connect(true);
  if (state_->settle_with_keeper(deadline) || state_->keeper_use == KeeperUse::kAuto) return;
  throw Error(Errc::kBusy,
              fmt::format("no keeper in '{}' takes {} (--keeper require): start `preload keeper` "
                          "there, or serve with --keeper auto",
                          state_->directory.path(), state_->holding.place()));
}

ServeEnd Server::run() try {
  while (true) {
    if (auto end = state_->take_wishes()) {
      state_->leave(*end);
      return *end;
    }
    state_->turn();
  }
} catch (...) {
  state_->leave_place();
  throw;
}

void Server::await_leases(Clock::time_point deadline) {
  Holding& holding = state_->holding;
  if (state_->left_to_keeper || holding.leases().size() == 0) return;
  const auto limit = std::chrono::ceil<std::chrono::seconds>(deadline - Clock::now());
  log::info(fmt::format("{} is going: its {} may end within {} s", holding.place(),
                        counted(holding.leases().size(), "open lease"), limit.count()));
  holding.drain(true);
  while (holding.leases().size() > 0 && Clock::now() < deadline) state_->loop.turn(deadline);
}

Inheritance Server::hand_on(Clock::time_point deadline) {
  state_->loop.stop_listening();
  while (state_->holding.leases().size() > 0 && Clock::now() < deadline)
    state_->loop.turn(deadline);
  return {{}, state_->holding.take_leases(), state_->artifacts.duplicates()};
}

}  // namespace preload
