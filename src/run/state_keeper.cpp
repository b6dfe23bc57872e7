// SPDX-License-Identifier: Apache-2.0
#include "run/state_keeper.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "base/bytes.hpp"
#include "base/log.hpp"

namespace preload::run {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(500);
constexpr int kTurnsPerLine = 20;  // a log line every 10 s; a terminal's line is redrawn each turn

}  // namespace

StateKeeper::StateKeeper(const SocketDir& directory, Endpoint endpoint, StateFile state,
                         LoadProgress& progress, Supervision& supervision)
    : directory_(directory),
      endpoint_(std::move(endpoint)),
      state_(std::move(state)),
      progress_(progress),
      supervision_(supervision),
      stalls_(progress.reads),
      terminal_(isatty(STDERR_FILENO) == 1) {
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
    const std::uint64_t before = state_.bytes;
    state_.bytes = progress_.bytes;
    state_.total_bytes = progress_.total_bytes;
    if (state_.bytes != before) write(state_);
    supervision_.set_progress(state_.bytes, state_.total_bytes);
    report_stalls();
    report();
    lock.lock();
  }
  if (stop_) return;
  const auto published = published_;
  lock.unlock();
  state_.state = "READY";
  state_.bytes = state_.total_bytes = progress_.total_bytes;
  write(state_);
  published();
}

// A warning, so that every rank's is seen.
void StateKeeper::report_stalls() {
  for (const std::string& line : stalls_.look(StalledReads::Clock::now())) log::warn(line);
}

void StateKeeper::report() {
  if (state_.global_rank != 0 || state_.total_bytes == 0) return;
  JobProgress job{state_.bytes, state_.total_bytes, 0};
  std::string slowest;
  if (const auto whole = supervision_.progress(); whole && whole->total_bytes != 0) {
    job = *whole;
    slowest = fmt::format(", slowest is rank {}", job.slowest_rank);
  }
  if (job.bytes >= job.total_bytes) return;
  const std::string text = fmt::format(
      "loading {} of {} ({:.0f} %){}", format_bytes(job.bytes), format_bytes(job.total_bytes),
      100.0 * static_cast<double>(job.bytes) / static_cast<double>(job.total_bytes), slowest);
  if (terminal_) {
    fmt::print(stderr, "\r{}\x1b[K\r", text);
    std::fflush(stderr);
  } else if (++turns_ % kTurnsPerLine == 0) {
    log::info(text);
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
