// SPDX-License-Identifier: Apache-2.0
#include "run/state_keeper.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "run/load_summary.hpp"

namespace preload::run {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(500);

}  // namespace

StateKeeper::StateKeeper(const SocketDir& directory, Endpoint endpoint, StateFile state, int node,
                         LoadProgress& progress, Supervision& supervision,
                         std::chrono::milliseconds stalled_after)
    : directory_(directory),
      endpoint_(std::move(endpoint)),
      state_(std::move(state)),
      node_(node),
      progress_(progress),
      supervision_(supervision),
      stalls_(progress.reads, stalled_after),
      line_(STDERR_FILENO) {
  state_.state = "LOADING";
  write_state(directory_, endpoint_, state_);
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

// The daemon's work does not hang on this file: a full disk is worth a warning.
void StateKeeper::write(const StateFile& state) noexcept {
  try {
    write_state(directory_, endpoint_, state);
  } catch (const std::exception& error) {
    if (!std::exchange(write_failed_, true)) {
      log::warn(fmt::format("{}/{} is not written: {}", directory_.path(), endpoint_.state_name(),
                            error.what()));
    }
  }
}

void StateKeeper::run() {
  std::unique_lock lock(mutex_);
  while (!stop_ && !ready_) {
    changed_.wait_for(lock, kTurn, [this] { return stop_ || ready_; });
    if (stop_ || ready_) break;
    lock.unlock();
    const auto now = std::chrono::steady_clock::now();
    const wire::Progress progress = measure(now);
    if (progress != state_.progress) {
      state_.progress = progress;
      write(state_);
    }
    tell(progress, now);
    lock.lock();
  }
  line_.end();
  if (stop_) return;
  const auto published = published_;
  lock.unlock();
  state_.state = "READY";
  state_.progress = {};
  state_.progress.bytes = state_.progress.total_bytes = progress_.total_bytes;
  write(state_);
  published();
}

wire::Progress StateKeeper::measure(std::chrono::steady_clock::time_point now) {
  wire::Progress progress;
  progress.bytes = progress_.bytes;
  progress.total_bytes = progress_.total_bytes;
  rate_.add(now, progress.bytes);
  progress.bytes_per_s = rate_.bytes_per_s();
  progress.seconds_left = seconds_left(progress.bytes, progress.total_bytes, progress.bytes_per_s);
  progress.slowest_rank = supervision_.slowest_rank();
  // Warnings, so that every rank's are seen.
  for (const std::string& line : stalls_.look(now)) log::warn(line);
  progress.stalled = stalls_.longest();
  return progress;
}

// The job channel, and on rank 0 the user.
void StateKeeper::tell(const wire::Progress& progress, std::chrono::steady_clock::time_point now) {
  const RankProgress own{state_.global_rank, node_, progress.bytes, progress.total_bytes,
                         progress.bytes_per_s.value_or(0)};
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
    line_.show(describe(summary), now);
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
  state_.state = "FAILED";
  state_.code = code;
  state_.text = text;
  state_.exit_status = exit_status;
  write(state_);
}

void StateKeeper::stopped() {
  stop_thread();
  try {
    remove_state(directory_, endpoint_);
  } catch (const Error& error) {
    log::warn(error.what());
  }
}

}  // namespace preload::run
