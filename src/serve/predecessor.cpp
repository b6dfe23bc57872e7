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

constexpr int kTimeoutMs = 5000;

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

Predecessor::Predecessor(const SocketDir& directory, const Endpoint& endpoint) {
  try {
    socket_ = connect_to(directory, endpoint.socket_name(), kTimeoutMs);
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    throw Error(Errc::kBusy,
                fmt::format("{} cannot be replaced: the daemon that has its lock does not answer "
                            "({}); wait until it is READY, or stop it",
                            endpoint.device, error.what()));
  }
  pid_ =
      wire::call_hello(socket_.get(), {{::getpid(), "preload serve", PRELOAD_VERSION}}, kTimeoutMs)
          .pid;
  package_ = unpack(wire::call_handover(socket_.get(), {Step::kPrepare}, kTimeoutMs).fds);
  if (!package_.lock)
    throw Error(Errc::kProtocol, "the daemon handed over no lock: it is of another release");
}

std::uint64_t Predecessor::drain() {
  return wire::call_handover(socket_.get(), {Step::kDrain}, kTimeoutMs).reply.open_leases;
}

TakenOver Predecessor::take_over() noexcept try {
  return unpack_rest(wire::call_handover(socket_.get(), {Step::kCommit}, kTimeoutMs));
} catch (const std::exception& error) {
  log::warn(fmt::format("the daemon that is replaced ended before its time: {}", error.what()));
  socket_.reset();
  return {};
}

void Predecessor::done() noexcept try {
  if (socket_) wire::call_handover(socket_.get(), {Step::kDone}, kTimeoutMs);
} catch (const std::exception& error) {
  log::debug(fmt::format("the replaced daemon did not answer its dismissal: {}", error.what()));
}

}  // namespace preload
