// SPDX-License-Identifier: Apache-2.0
#include "serve/predecessor.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <iterator>

#include "base/log.hpp"
#include "serve/artifact_package.hpp"
#include "serve/connect.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

using Step = wire::HandoverRequest::Step;

TakenOver unpack_rest(wire::PackageAnswer answer) {
  TakenOver rest;
  std::vector<Fd>& fds = answer.fds;
  const std::size_t leases = answer.reply.leases.size();
  const std::size_t socket = leases + artifact_fds(answer.reply.artifacts);
  if (fds.size() <= socket)
    throw Error(Errc::kProtocol, "the daemon handed over fewer descriptors than it named");
  for (std::size_t i = 0; i < leases; ++i)
    rest.leases.push_back(unpack_lease(answer.reply.leases[i], std::move(fds[i])));
  rest.artifacts = unpack_artifacts({std::make_move_iterator(fds.begin() + leases),
                                     std::make_move_iterator(fds.begin() + socket)});
  check_socket(fds[socket].get());
  rest.listener = std::move(fds[socket]);
  for (std::size_t i = socket + 1; i < fds.size(); ++i) rest.clients.push_back(std::move(fds[i]));
  return rest;
}

}  // namespace

Predecessor::Predecessor(const SocketDir& directory, const Endpoint& endpoint, int timeout_ms)
    : timeout_ms_(timeout_ms) {
  try {
    socket_ = connect_to(directory, endpoint.socket_name(), timeout_ms_);
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    throw Error(Errc::kBusy,
                fmt::format("{} cannot be replaced: the daemon that has its lock does not answer "
                            "({}); wait until it is READY, or stop it",
                            endpoint.device, error.what()));
  }
  try {
    pid_ = wire::call_hello(socket_.get(), {{::getpid(), "preload serve", PRELOAD_VERSION}},
                            timeout_ms_)
               .pid;
    package_ = unpack(wire::call_handover(socket_.get(), {Step::kPrepare}, timeout_ms_).fds);
  } catch (const wire::PeerError&) {
    throw;
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    const std::optional<int> holder = lock_holder(directory, endpoint.lock_name());
    throw Error(Errc::kBusy,
                fmt::format("{} cannot be replaced: its daemon{} hangs or is ending ({}): wait for "
                            "it, or end it with `kill -9`, and start again",
                            endpoint.device, holder ? fmt::format(", pid {},", *holder) : "",
                            error.what()));
  }
  if (!package_.lock)
    throw Error(Errc::kProtocol, "the daemon handed over no lock: it is of another release");
}

std::uint64_t Predecessor::drain() {
  return wire::call_handover(socket_.get(), {Step::kDrain}, timeout_ms_).reply.open_leases;
}

void Predecessor::free() { wire::call_handover(socket_.get(), {Step::kFree}, timeout_ms_); }

TakenOver Predecessor::take_over() noexcept try {
  return unpack_rest(wire::call_handover(socket_.get(), {Step::kCommit}, timeout_ms_));
} catch (const std::exception& error) {
  log::warn(fmt::format(
      "the daemon that is replaced, pid {}, has ended or hangs ({}): its place is taken "
      "without it; if it lives, it ends when it finds that",
      pid_, error.what()));
  socket_.reset();
  return {};
}

void Predecessor::done() noexcept try {
  if (socket_) wire::call_handover(socket_.get(), {Step::kDone}, timeout_ms_);
} catch (const std::exception& error) {
  log::debug(fmt::format("the replaced daemon did not answer its dismissal: {}", error.what()));
}

}  // namespace preload
