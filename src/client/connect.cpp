// SPDX-License-Identifier: Apache-2.0
#include "client/connect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "serve/connect.hpp"
#include "serve/keeper.hpp"
#include "wire/exchange.hpp"

namespace preload::client {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
constexpr auto kPollInterval = milliseconds(20);
constexpr auto kTombstoneGrace = std::chrono::seconds(3);

// The names of one daemon in the directory, and what to call it.
struct Place {
  std::string stem;
  std::string name;
  std::string file(std::string_view suffix) const { return stem + std::string(suffix); }
};

std::string loading_text(const SocketDir& directory, const Place& place,
                         const std::optional<StateFile>& state) {
  std::string text =
      fmt::format("the daemon for {} in {} is still loading", place.name, directory.path());
  if (!state) return text;
  if (state->pid > 0) text += fmt::format(", pid {}", state->pid);
  if (!state->model.empty()) text += ", " + state->model;
  if (state->progress.total_bytes > 0) text += ", " + wire::describe(state->progress);
  if (state->progress.stalled) text += "; " + wire::describe(*state->progress.stalled);
  return text;
}

// Whether the daemon came as far as serving, so that its weights may outlive it at a keeper.
bool has_served(const std::optional<StateFile>& state) {
  return state && (state->state == "READY" || state->state == "DRAINING");
}

std::string silent_text(const SocketDir& directory, const Place& place, const StateFile& state,
                        const std::string& unreachable) {
  return fmt::format(
      "the daemon for {} in {} (pid {}) holds its lock {} but does not answer ({}): if it is "
      "stopped, let it go on (kill -CONT {}), else end it",
      place.name, directory.path(), state.pid, place.file(".lock"), unreachable, state.pid);
}

// `unreachable`: why nobody answered at its socket. Who holds a lock may hold weights, answer or
// not: that is never "absent".
Look look_without_answer(const SocketDir& directory, const Place& place,
                         const std::string& unreachable, bool keeper_is_silent) {
  const bool held = lock_is_held(directory, place.file(".lock"));
  std::optional<StateFile> state = read_state(directory, place.file(".state"));
  if (state && state->boot_id != current_boot_id()) state.reset();
  if (state && state->state == "FAILED") {
    return Tombstone{fmt::format("the daemon for {} in {} failed ({}): {}", place.name,
                                 directory.path(), state->code, state->text),
                     *state};
  }
  if (held && state && state->state != "LOADING") {
    return Loading{silent_text(directory, place, *state, unreachable), state};
  }
  if (held) return Loading{loading_text(directory, place, state), state};
  if (keeper_is_silent && has_served(state)) {
    return Loading{
        fmt::format("the daemon for {} in {} (pid {}) is gone, and the keeper, which may "
                    "have its weights, does not answer: let it go on (kill -CONT) or "
                    "end it; its pid is in {}",
                    place.name, directory.path(), state->pid, kKeeperLock),
        state};
  }
  if (state) {
    return Absent{
        fmt::format("the daemon for {} in {} (pid {}, last {}) is gone: its lock {} is "
                    "free; start it again",
                    place.name, directory.path(), state->pid, state->state, place.file(".lock"))};
  }
  return Absent{
      fmt::format("no daemon for {} in {}: neither {} nor {} is in use; start one, or "
                  "name the directory that it was given as --weight-cache-socket-dir",
                  place.name, directory.path(), place.file(".sock"), place.file(".lock"))};
}

// What a keeper has of a daemon that is gone; it answers in its stead.
struct Kept {
  std::optional<Connection> connection;
  bool is_silent = false;  // one runs, and does not answer
};

Kept ask_keeper(const SocketDir& directory, const Place& place, const ConnectOptions& options) {
  try {
    Fd socket = connect_to(directory, std::string(kKeeperSocket), options.connect_timeout_ms);
    wire::HelloReply hello =
        wire::call_hello(socket.get(), {options.identity, place.stem}, options.connect_timeout_ms);
    if (hello.state != wire::DaemonState::kOrphaned) return {};
    return {Connection{std::move(socket), std::move(hello)}};
  } catch (const wire::PeerError& refusal) {
    if (refusal.code() != Errc::kUnavailable) throw;
    return {};  // it has nothing of this place
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    return {std::nullopt, lock_is_held(directory, std::string(kKeeperLock))};
  }
}

Look look_at(const SocketDir& directory, const Place& place, const ConnectOptions& options) {
  Fd socket;
  try {
    socket = connect_to(directory, place.file(".sock"), options.connect_timeout_ms);
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    Kept kept = ask_keeper(directory, place, options);
    if (kept.connection) return std::move(*kept.connection);
    return look_without_answer(directory, place, error.what(), kept.is_silent);
  }
  wire::HelloReply hello;
  try {
    hello = wire::call_hello(socket.get(), {options.identity}, options.connect_timeout_ms);
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) throw;
    return look_without_answer(directory, place, error.what(), false);
  }
  if (hello.state == wire::DaemonState::kLoading) {
    const auto state = read_state(directory, place.file(".state"));
    return Loading{loading_text(directory, place, state), state};
  }
  return Connection{std::move(socket), std::move(hello)};
}

// Where the wanted daemon is to be looked for.
struct Address {
  SocketDirChoice directory;
  std::optional<Place> place;  // of the only daemon there, when unset
};

Address address_of(const Wanted& wanted, const std::optional<std::string>& device) {
  if (!wanted.socket_path.empty()) {
    const std::filesystem::path path(wanted.socket_path);
    if (!path.is_absolute() || path.extension() != ".sock") {
      throw Error(Errc::kUsage,
                  fmt::format("socket path '{}' must be absolute and end with .sock, as `preload "
                              "status --json` shows it",
                              wanted.socket_path));
    }
    return {{path.parent_path().string(), wanted.socket_dir.allow_uids},
            Place{path.stem().string(), path.filename().string()}};
  }
  if (!device) return {wanted.socket_dir, std::nullopt};
  const Endpoint endpoint{*device, wanted.slot.value_or(""), wanted.role.value_or(Role::kTarget)};
  return {wanted.socket_dir, Place{endpoint.stem(), describe(endpoint)}};
}

// A socket that was named by its path may be of another daemon than the caller thinks.
void check_named(const Wanted& wanted, const std::optional<std::string>& device,
                 const wire::HelloReply& hello) {
  if (wanted.socket_path.empty()) return;
  const auto check = [&](std::string_view what, const std::optional<std::string>& expected,
                         const std::string& served) {
    if (!expected || *expected == served) return;
    throw Error(Errc::kMismatch, fmt::format("{} is of {} \"{}\", not \"{}\"", wanted.socket_path,
                                             what, served, *expected));
  };
  check("device", device, hello.gpu_uuid);
  check("slot", wanted.slot, hello.slot);
  if (wanted.role) check("role", std::string(role_name(*wanted.role)), hello.role);
}

Look look(const ConnectOptions& options, const std::optional<std::string>& device) {
  const Wanted& wanted = options.wanted;
  try {
    Address address = address_of(wanted, device);
    const SocketDir directory = SocketDir::open(address.directory, false);
    if (!address.place) {
      const Endpoint only =
          only_endpoint(directory, wanted.slot.value_or(""), wanted.role.value_or(Role::kTarget));
      address.place = Place{only.stem(), describe(only)};
    }
    Look found = look_at(directory, *address.place, options);
    if (const auto* connection = std::get_if<Connection>(&found)) {
      check_named(wanted, device, connection->hello);
    }
    return found;
  } catch (const Error& error) {
    // A directory or daemon that is not there yet, or one that went while we spoke with it.
    if (error.code() != Errc::kUnavailable) throw;
    return Absent{error.what()};
  }
}

std::optional<std::string> wanted_device(const Wanted& wanted) {
  if (!wanted.device) return std::nullopt;
  return device_from_text(*wanted.device);
}

// The wait as a whole: what each look means for it.
class Wait {
 public:
  explicit Wait(const ConnectOptions& options)
      : timeout_(options.wait_timeout_ms),
        absent_timeout_(options.absent_timeout_ms.value_or(options.wait_timeout_ms)),
        sign_restarts_(options.absent_timeout_ms.has_value()) {}

  void consider(const Loading& loading) {
    if (sign_restarts_ && !seen_) begin_ = Clock::now();
    seen_ = true;
    if (loading.state) loading_pid_ = loading.state->pid;
    give_up_after(begin_, timeout_, loading.text);
  }
  void consider(const Absent& absent) { give_up_after(begin_, absent_timeout_, absent.text); }
  void consider(const Tombstone& tombstone) {
    if (tombstone_time_ms_ != tombstone.state.time_ms) {
      tombstone_time_ms_ = tombstone.state.time_ms;
      tombstone_until_ = std::min(begin_ + timeout_, Clock::now() + kTombstoneGrace);
    }
    // What was seen loading is what is waited for; an older failure may be followed by a start.
    const bool fresh = seen_ && loading_pid_ == tombstone.state.pid;
    if (fresh || Clock::now() >= tombstone_until_) throw DaemonFailed(tombstone.text);
  }
  void consider(const Connection&) {}

 private:
  static void give_up_after(Clock::time_point begin, milliseconds timeout,
                            const std::string& text) {
    if (Clock::now() < begin + timeout) return;
    if (timeout.count() == 0) throw Error(Errc::kUnavailable, text);
    throw Error(Errc::kTimeout,
                fmt::format("waited {} s: {}", static_cast<double>(timeout.count()) / 1000, text));
  }

  Clock::time_point begin_ = Clock::now();
  const milliseconds timeout_;
  const milliseconds absent_timeout_;
  const bool sign_restarts_;
  bool seen_ = false;    // a daemon that is coming
  int loading_pid_ = 0;  // its
  std::int64_t tombstone_time_ms_ = -1;
  Clock::time_point tombstone_until_;
};

}  // namespace

Look look_for_daemon(const ConnectOptions& options) {
  return look(options, wanted_device(options.wanted));
}

Connection connect_daemon(const ConnectOptions& options) {
  const std::optional<std::string> device = wanted_device(options.wanted);
  Wait wait(options);
  for (;;) {
    Look found = look(options, device);
    if (auto* connection = std::get_if<Connection>(&found)) return std::move(*connection);
    std::visit([&wait](const auto& seen) { wait.consider(seen); }, found);
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace preload::client
