// SPDX-License-Identifier: Apache-2.0
#include "run/succession.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "serve/connect.hpp"
#include "wire/exchange.hpp"

namespace preload::run {
namespace {

constexpr int kTimeoutMs = 5000;

}  // namespace

void take_place_of(const SocketDir& directory, const cli::ServeOptions& options,
                   RoleDaemon& daemon) {
  const Endpoint& endpoint = daemon.role.endpoint;
  if (!options.replace || !lock_is_held(directory, endpoint.lock_name())) {
    daemon.lock = take_lock(directory, endpoint);
    return;
  }
  daemon.next_lock = take_named_lock(directory, endpoint.next_lock_name(),
                                     "another successor of " + endpoint.device);
  daemon.predecessor.emplace(directory, endpoint);
  Package package = daemon.predecessor->take_package();
  daemon.lock = std::move(package.lock);
  daemon.generation = package.generation + 1;
  daemon.inheritance.artifacts = std::move(package.artifacts);
  if (package.generations.empty()) return;
  if (!is_same_place(package.generations.front().endpoint, endpoint))
    throw Error(Errc::kProtocol, "the daemon handed over what is of another place");
  daemon.offer = std::move(package);
}

void end_left_over(const SocketDir& directory, const std::list<RoleDaemon>& daemons) {
  const bool has_draft = std::ranges::any_of(
      daemons, [](const RoleDaemon& daemon) { return daemon.role.role == Role::kDraft; });
  if (has_draft || daemons.empty() || !daemons.front().predecessor) return;
  Endpoint draft = daemons.front().role.endpoint;
  draft.role = Role::kDraft;
  try {
    const Fd socket = connect_to(directory, draft.socket_name(), kTimeoutMs);
    if (wire::call_status(socket.get(), kTimeoutMs).pid != daemons.front().predecessor->pid())
      return;
    log::info(fmt::format("the draft of {} is not served any more", draft.device));
    wire::call_stop(socket.get(), {}, kTimeoutMs);
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) log::warn(error.what());  // there was none
  }
}

}  // namespace preload::run
