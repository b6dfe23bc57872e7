// SPDX-License-Identifier: Apache-2.0
#include "run/state_keeper.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "run/load_summary.hpp"

namespace preload::run {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(500);
constexpr auto kWriteAgain = std::chrono::seconds(2);

}  // namespace

StateKeeper::StateKeeper(const SocketDir& directory, const std::vector<Kept>& roles, int node,
                         Supervision& supervision,
                         std::function<void(const std::string&)> on_summary,
                         std::chrono::milliseconds stalled_after)
    : directory_(directory),
      node_(node),
      supervision_(supervision),
      on_summary_(std::move(on_summary)),
      line_(STDERR_FILENO) {
  for (const Kept& kept : roles) {
    Watched& role = roles_.emplace_back(kept, stalled_after);
    role.kept.state.state = "LOADING";
    if (role.kept.succeeds) {
      write(role);
    } else {
      write_first(role);
    }
  }
  thread_ = std::thread([this] { run(); });
}

StateKeeper::~StateKeeper() { stop_thread(); }

void StateKeeper::stop_thread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// The daemon's work does not hang on this file: a full disk is worth a warning. While another has
// the place, a successor's is beside it.
bool StateKeeper::write(Watched& role) noexcept {
  if (role.gone) return true;
  const Endpoint& at = role.kept.endpoint;
  const std::string name = role.kept.succeeds ? at.next_state_name() : at.state_name();
  try {
    write_state(directory_, at, name, role.kept.state);
    return true;
  } catch (const std::exception& error) {
    if (!std::exchange(write_failed_, true)) {
      log::warn(fmt::format("{}/{} is not written: {}", directory_.path(), name, error.what()));
    }
    return false;
  }
}

// Without it nobody could wait for the daemon, or stop it while it loads.
void StateKeeper::write_first(const Watched& role) {
  try {
    write_state(directory_, role.kept.endpoint, role.kept.state);
  } catch (const Error& error) {
    if (error.code() == Errc::kUsage) throw;  // it says what to do
    throw Error(Errc::kUsage,
                fmt::format("{}/{} is not written: {}: make room in the socket directory's file "
                            "system, or choose another with --weight-cache-socket-dir",
                            directory_.path(), role.kept.endpoint.state_name(), error.what()));
  }
}

void StateKeeper::remove(Watched& role) noexcept {
  if (std::exchange(role.gone, true)) return;
  const Endpoint& at = role.kept.endpoint;
  remove_file(role.kept.succeeds ? at.next_state_name() : at.state_name());
}

bool StateKeeper::write_ready() noexcept {
  bool all = true;
  const std::lock_guard files(files_);
  for (Watched& role : roles_) {
    if (role.gone) continue;  // its progress may be gone too
    const bool succeeded = std::exchange(role.kept.succeeds, false);
    role.kept.state.state = "READY";
    role.kept.state.progress = {};
    role.kept.state.progress.bytes = role.kept.state.progress.total_bytes =
        role.kept.progress->total_bytes;
    all = write(role) && all;
    if (succeeded) remove_file(role.kept.endpoint.next_state_name());
  }
  return all;
}

void StateKeeper::remove_file(const std::string& name) noexcept {
  try {
    remove_state(directory_, name);
  } catch (const Error& error) {
    log::warn(error.what());
  }
}

void StateKeeper::run() {
  std::unique_lock lock(mutex_);
  while (!stop_ && !ready_) {
    changed_.wait_for(lock, kTurn, [this] { return stop_ || ready_; });
    if (stop_ || ready_) break;
    lock.unlock();
    report();
    lock.lock();
  }
  line_.end();
  if (stop_) return;
  const auto published = published_;
  lock.unlock();
  bool written = write_ready();
  published();
  // Who looks from outside would take it for loading, until there is room for a word; later, for
  // nobody's, when something removes the file.
  for (lock.lock(); !stop_;) {
    changed_.wait_for(lock, kWriteAgain, [this] { return stop_; });
    if (stop_) break;
    lock.unlock();
    if (written) {
      write_removed();
    } else {
      written = write_ready();
    }
    lock.lock();
  }
}

void StateKeeper::write_removed() noexcept {
  const std::lock_guard files(files_);
  for (Watched& role : roles_) {
    const std::string name = role.kept.endpoint.state_name();
    if (role.gone || ::faccessat(directory_.fd(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
        errno != ENOENT)
      continue;
    write(role);
  }
}

void StateKeeper::enter(std::string phase) {
  {
    const std::lock_guard lock(mutex_);
    phase_ = std::move(phase);
  }
  report();
}

void StateKeeper::report() {
  const auto now = std::chrono::steady_clock::now();
  std::string phase;
  {
    const std::lock_guard lock(mutex_);
    phase = phase_;
  }
  RankProgress own{.node = node_};
  const std::lock_guard files(files_);
  for (Watched& role : roles_) {
    if (role.gone) continue;
    wire::Progress progress = measure(role, now);
    progress.phase = phase;
    own.rank = role.kept.state.global_rank;
    own.bytes += progress.bytes;
    own.total_bytes += progress.total_bytes;
    own.bytes_per_s += progress.bytes_per_s.value_or(0);
    if (progress == role.kept.state.progress) continue;
    role.kept.state.progress = progress;
    write(role);
  }
  tell(own, now);
  if (own.rank == 0 && !phase.empty() && on_summary_) on_summary_(phase);
}

wire::Progress StateKeeper::measure(Watched& role, std::chrono::steady_clock::time_point now) {
  wire::Progress progress;
  progress.bytes = role.kept.progress->bytes;
  progress.total_bytes = role.kept.progress->total_bytes;
  role.rate.add(now, progress.bytes);
  progress.bytes_per_s = role.rate.bytes_per_s();
  progress.seconds_left = seconds_left(progress.bytes, progress.total_bytes, progress.bytes_per_s);
  progress.slowest_rank = supervision_.slowest_rank();
  // Warnings, so that every rank's are seen.
  for (const std::string& line : role.stalls.look(now)) log::warn(line);
  progress.stalled = role.stalls.longest();
  return progress;
}

// The job channel, and on rank 0 the user.
void StateKeeper::tell(const RankProgress& own, std::chrono::steady_clock::time_point now) {
  supervision_.set_progress(own);
  if (own.rank != 0 || own.total_bytes == 0) return;
  std::vector<RankProgress> ranks = supervision_.progress();
  const auto heard = std::ranges::find(ranks, 0, &RankProgress::rank);
  if (heard == ranks.end()) {
    ranks.push_back(own);
  } else {
    *heard = own;
  }
  const LoadSummary summary = summarise(ranks, node_);
  if (summary.bytes < summary.total_bytes) {
    const std::string text = describe(summary);
    line_.show(text, now);
    if (on_summary_) on_summary_(text);
  } else {
    line_.end();
  }
}

void StateKeeper::ready(std::function<void()> published) {
  {
    const std::lock_guard lock(mutex_);
    ready_ = true;
    published_ = std::move(published);
  }
  changed_.notify_all();
}

void StateKeeper::failed(std::string_view code, const std::string& text, int exit_status) {
  stop_thread();
  const std::lock_guard files(files_);
  for (Watched& role : roles_) {
    role.kept.state.state = "FAILED";
    role.kept.state.code = code;
    role.kept.state.text = text;
    role.kept.state.exit_status = exit_status;
    write(role);
  }
}

void StateKeeper::stopped() {
  stop_thread();
  const std::lock_guard files(files_);
  for (Watched& role : roles_) remove(role);
}

void StateKeeper::stopped(const Endpoint& endpoint) {
  const std::lock_guard files(files_);
  for (Watched& role : roles_) {
    if (role.kept.endpoint.stem() == endpoint.stem()) remove(role);
  }
}

void StateKeeper::handed_over(const Endpoint& endpoint) {
  const std::lock_guard files(files_);
  for (Watched& role : roles_) {
    if (role.kept.endpoint.stem() == endpoint.stem()) role.gone = true;
  }
}

}  // namespace preload::run
