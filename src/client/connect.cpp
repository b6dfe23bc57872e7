// SPDX-License-Identifier: Apache-2.0
#include "client/connect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <variant>

#include "serve/connect.hpp"
#include "serve/keeper.hpp"
#include "serve/package.hpp"
#include "wire/exchange.hpp"

namespace preload::client {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr auto kTombstoneGrace = std::chrono::seconds(3);

// What one look at the directory found, other than a daemon that serves.
struct Loading {
  std::string text;
};
struct Tombstone {
  std::int64_t time_ms = 0;
  std::string text;
};
struct Absent {
  std::string text;
};
using Look = std::variant<Connection, Loading, Tombstone, Absent>;

std::string loading_text(const SocketDir& directory, const Endpoint& endpoint,
                         const std::optional<StateFile>& state) {
  std::string text =
      fmt::format("the daemon for {} in {} is still loading", describe(endpoint), directory.path());
  if (!state) return text;
  if (state->pid > 0) text += fmt::format(", pid {}", state->pid);
  if (!state->model.empty()) text += ", " + state->model;
  if (state->progress.total_bytes > 0) text += ", " + wire::describe(state->progress);
  if (state->progress.stalled) text += "; " + wire::describe(*state->progress.stalled);
  return text;
}

// `unreachable`: why its socket did not answer.
Look look_without_socket(const SocketDir& directory, const Endpoint& endpoint,
                         const std::string& unreachable) {
  const bool held = lock_is_held(directory, endpoint.lock_name());
  std::optional<StateFile> state = read_state(directory, endpoint.state_name());
  if (state && state->boot_id != current_boot_id()) state.reset();
  if (state && state->state == "FAILED") {
    return Tombstone{state->time_ms,
                     fmt::format("the daemon for {} in {} failed ({}): {}", describe(endpoint),
                                 directory.path(), state->code, state->text)};
  }
  if (held && state && state->state == "READY") return Loading{unreachable};
  if (held) return Loading{loading_text(directory, endpoint, state)};
  if (state) {
    return Absent{fmt::format(
        "the daemon for {} in {} (pid {}, last {}) is gone: its lock {} is "
        "free; start it again",
        describe(endpoint), directory.path(), state->pid, state->state, endpoint.lock_name())};
  }
  return Absent{fmt::format(
      "no daemon for {} in {}: neither {} nor {} is in use; start one, or "
      "name the directory that it was given as --weight-cache-socket-dir",
      describe(endpoint), directory.path(), endpoint.socket_name(), endpoint.lock_name())};
}

// What a keeper has of a daemon that is gone; it answers in its stead.
std::optional<Connection> ask_keeper(const SocketDir& directory, const Endpoint& endpoint,
                                     const ConnectOptions& options) {
  try {
    Fd socket = connect_to(directory, std::string(kKeeperSocket), options.connect_timeout_ms);
    wire::HelloReply hello = wire::call_hello(socket.get(), {options.identity, place_of(endpoint)},
                                              options.connect_timeout_ms);
    if (hello.state != wire::DaemonState::kOrphaned) return std::nullopt;
    return Connection{std::move(socket), endpoint, std::move(hello)};
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    return std::nullopt;  // no keeper, or nothing of this place
  }
}

Look look_at(const SocketDir& directory, const Endpoint& endpoint, const ConnectOptions& options) {
  Fd socket;
  try {
    socket = connect_to(directory, endpoint.socket_name(), options.connect_timeout_ms);
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    if (auto kept = ask_keeper(directory, endpoint, options)) return std::move(*kept);
    return look_without_socket(directory, endpoint, error.what());
  }
  wire::HelloReply hello =
      wire::call_hello(socket.get(), {options.identity}, options.connect_timeout_ms);
  if (hello.state == wire::DaemonState::kLoading) {
    return Loading{loading_text(directory, endpoint, read_state(directory, endpoint.state_name()))};
  }
  return Connection{std::move(socket), endpoint, std::move(hello)};
}

Look look(const ConnectOptions& options, const std::optional<std::string>& device) {
  const Wanted& wanted = options.wanted;
  try {
    const SocketDir directory = SocketDir::open(wanted.socket_dir, false);
    const Endpoint endpoint = device ? Endpoint{*device, wanted.slot, wanted.role}
                                     : only_endpoint(directory, wanted.slot, wanted.role);
    return look_at(directory, endpoint, options);
  } catch (const Error& error) {
    // A directory or daemon that is not there yet, or one that went while we spoke with it.
    if (error.code() != Errc::kUnavailable) throw;
    return Absent{error.what()};
  }
}

// The wait as a whole: what each look means for it.
class Wait {
 public:
  explicit Wait(int timeout_ms)
      : timeout_ms_(timeout_ms), deadline_(Clock::now() + std::chrono::milliseconds(timeout_ms)) {}

  void consider(const Loading& loading) { give_up_when_over(loading.text); }
  void consider(const Absent& absent) { give_up_when_over(absent.text); }
  void consider(const Tombstone& tombstone) {
    if (tombstone_time_ms_ != tombstone.time_ms) {
      tombstone_time_ms_ = tombstone.time_ms;
      tombstone_until_ = std::min(deadline_, Clock::now() + kTombstoneGrace);
    }
    if (Clock::now() >= tombstone_until_) throw DaemonFailed(tombstone.text);
  }
  void consider(const Connection&) {}

 private:
  void give_up_when_over(const std::string& text) const {
    if (Clock::now() < deadline_) return;
    if (timeout_ms_ == 0) throw Error(Errc::kUnavailable, text);
    throw Error(Errc::kTimeout, fmt::format("waited {} s: {}", timeout_ms_ / 1000.0, text));
  }

  int timeout_ms_;
  Clock::time_point deadline_;
  std::optional<std::int64_t> tombstone_time_ms_;
  Clock::time_point tombstone_until_;
};

}  // namespace

Connection connect_daemon(const ConnectOptions& options) {
  std::optional<std::string> device;
  if (options.wanted.device) device = device_from_text(*options.wanted.device);
  Wait wait(options.wait_timeout_ms);
  for (;;) {
    Look found = look(options, device);
    if (auto* connection = std::get_if<Connection>(&found)) return std::move(*connection);
    std::visit([&wait](const auto& seen) { wait.consider(seen); }, found);
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace preload::client
