// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "load/loader.hpp"
#include "load/stalled_reads.hpp"
#include "run/progress_line.hpp"
#include "run/rate_window.hpp"
#include "run/supervision.hpp"
#include "serve/socket_dir.hpp"

namespace preload::run {

// Keeps the `.state` file beside a held lock: LOADING with progress, READY, then a tombstone or
// nothing. One thread writes it and tells the job channel and the user how far the load is; nobody
// else waits for the file system.
class StateKeeper {
 public:
  // Writes LOADING; `node` is the rank's. A read is stalled after `stalled_after`.
  // `directory`, `progress` and `supervision` outlive it.
  StateKeeper(const SocketDir& directory, Endpoint endpoint, StateFile state, int node,
              LoadProgress& progress, Supervision& supervision,
              std::chrono::milliseconds stalled_after = std::chrono::seconds(10));
  ~StateKeeper();
  StateKeeper(const StateKeeper&) = delete;
  StateKeeper& operator=(const StateKeeper&) = delete;

  // Does not block: READY is written by the thread, which then calls `published`.
  void ready(std::function<void()> published);
  void failed(std::string_view code, const std::string& text, int exit_status);  // the tombstone
  void stopped();  // after a requested stop: the file goes

 private:
  void run();
  void stop_thread();
  void write(const StateFile& state) noexcept;
  wire::Progress measure(std::chrono::steady_clock::time_point now);
  void tell(const wire::Progress& progress, std::chrono::steady_clock::time_point now);

  const SocketDir& directory_;
  const Endpoint endpoint_;
  StateFile state_;
  const int node_;
  LoadProgress& progress_;
  Supervision& supervision_;
  bool write_failed_ = false;
  RateWindow rate_;
  StalledReads stalls_;
  ProgressLine line_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool ready_ = false, stop_ = false;
  std::function<void()> published_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace preload::run
