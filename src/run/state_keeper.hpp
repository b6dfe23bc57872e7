// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "load/loader.hpp"
#include "load/stalled_reads.hpp"
#include "run/progress_line.hpp"
#include "run/rate_window.hpp"
#include "run/supervision.hpp"
#include "serve/socket_dir.hpp"

namespace preload::run {

// Keeps the `.state` files beside this rank's held locks, one a role: LOADING with progress, READY,
// then a tombstone or nothing. One thread writes them and tells the job channel and the user how
// far the load is; nobody else waits for the file system. Thread-safe.
class StateKeeper {
 public:
  // One role of the rank. Its progress outlives the keeper.
  struct Kept {
    Endpoint endpoint;
    StateFile state;
    LoadProgress* progress = nullptr;
    bool succeeds = false;  // until READY `.state` is the replaced daemon's, `.next.state` ours
  };

  // Writes LOADING for each; `node` is the rank's. Rank 0's keeper calls `on_summary` twice a
  // second with how far the job is. A read is stalled after `stalled_after`. `directory` and
  // `supervision` outlive it.
  StateKeeper(const SocketDir& directory, const std::vector<Kept>& roles, int node,
              Supervision& supervision, std::function<void(const std::string&)> on_summary = {},
              std::chrono::milliseconds stalled_after = std::chrono::seconds(10));
  ~StateKeeper();
  StateKeeper(const StateKeeper&) = delete;
  StateKeeper& operator=(const StateKeeper&) = delete;

  // What the rank does from now on, once all is loaded: Progress::phase.
  void enter(std::string phase);
  // Does not block: READY is written by the thread, which then calls `published`.
  void ready(std::function<void()> published);
  void failed(std::string_view code, const std::string& text, int exit_status);  // the tombstones
  void stopped();                              // after a requested stop: the files go
  void stopped(const Endpoint& endpoint);      // the same for one role; the others stay
  void handed_over(const Endpoint& endpoint);  // the file is its successor's

 private:
  // A role and what is known of its load.
  struct Watched {
    Watched(Kept role, std::chrono::milliseconds stalled_after)
        : kept(std::move(role)), stalls(kept.progress->reads, stalled_after) {}
    Kept kept;
    RateWindow rate;
    StalledReads stalls;
    bool gone = false;  // its file was removed for good
  };

  void run();
  void stop_thread();
  bool write(Watched& role) noexcept;
  void write_first(const Watched& role);
  void write_removed() noexcept;  // what is not there any more
  bool write_ready() noexcept;    // of every role; false where one could not be
  void remove(Watched& role) noexcept;
  void remove_file(const std::string& name) noexcept;
  void report();  // LOADING, how far
  wire::Progress measure(Watched& role, std::chrono::steady_clock::time_point now);
  void tell(const RankProgress& own, std::chrono::steady_clock::time_point now);

  const SocketDir& directory_;
  const int node_;
  Supervision& supervision_;
  const std::function<void(const std::string&)> on_summary_;
  ProgressLine line_;
  std::mutex files_;  // of the files, and of what follows
  std::list<Watched> roles_;
  bool write_failed_ = false;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool ready_ = false, stop_ = false;
  std::string phase_;
  std::function<void()> published_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace preload::run
