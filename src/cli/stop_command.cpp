// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "cli/command.hpp"
#include "cli/daemon_views.hpp"
#include "serve/connect.hpp"
#include "serve/keeper.hpp"
#include "serve/stop_request.hpp"
#include "wire/exchange.hpp"

namespace preload::cli {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kAnswerTimeoutMs = 5000;
constexpr double kTimeoutS = 30;
constexpr auto kPollInterval = std::chrono::milliseconds(50);
constexpr auto kKilledEnds = std::chrono::seconds(3);

// Whether the process has that file open. A number that a lock file or a `.state` gives may be of
// another PID namespace, where it is somebody else's.
bool has_open(int pid, const SocketDir& directory, const std::string& name) {
  struct stat wanted {
  }, open{};
  if (::fstatat(directory.fd(), name.c_str(), &wanted, AT_SYMLINK_NOFOLLOW) != 0) return false;
  std::error_code failed;
  std::filesystem::directory_iterator fds(fmt::format("/proc/{}/fd", pid), failed);
  for (; !failed && fds != std::filesystem::directory_iterator(); fds.increment(failed)) {
    if (::stat(fds->path().c_str(), &open) == 0 && open.st_dev == wanted.st_dev &&
        open.st_ino == wanted.st_ino)
      return true;
  }
  return false;
}

// The process that holds the daemon's lock. Its pid is its own only while it does: it is pinned
// first, then looked at again. Empty when it cannot be told (yet) who that is.
Fd pin_holder(const SocketDir& directory, const DaemonView& view) {
  const std::string lock = view.lock_name();
  const auto holder = lock_holder(directory, lock);
  if (!view.file || !holder || *holder != view.file->pid) return {};
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, *holder, 0)));
  if (!process || !has_open(*holder, directory, lock)) return {};
  if (!lock_is_held(directory, lock) || lock_holder(directory, lock) != holder) return {};
  return process;
}

// SIGKILL, or a stop that its status shows as one.
void send_signal(const Fd& process, int signal, const DaemonView& view) {
  const bool sent = signal == SIGKILL
                        ? ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) == 0
                        : send_stop_request(process.get());
  if (sent) return;
  throw Error(Errc::kUnavailable,
              fmt::format("cannot signal pid {}: {}", view.status().pid, errno_text(errno)));
}

// A loading daemon has no socket.
bool stop_loading(const SocketDir& directory, const DaemonView& view) {
  const Fd process = pin_holder(directory, view);
  if (!process) return false;
  send_signal(process, SIGTERM, view);
  return true;
}

// Suspended (SIGSTOP, a debugger): what it was asked for does not reach it.
bool is_suspended(int pid) {
  const std::string text = read_file_at(AT_FDCWD, fmt::format("/proc/{}/stat", pid)).value_or("");
  const std::size_t end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() &&
         (text[end + 2] == 'T' || text[end + 2] == 't');
}

bool stop_serving(const SocketDir& directory, const DaemonView& view, bool job) {
  const Fd socket = connect_to(directory, view.stem + ".sock", kAnswerTimeoutMs);
  wire::call_stop(socket.get(), {job}, kAnswerTimeoutMs);
  return true;
}

// Weights of a daemon that is gone.
bool withdraw(const SocketDir& directory, const DaemonView& view) {
  const Fd socket = connect_to(directory, std::string(kKeeperSocket), kAnswerTimeoutMs);
  wire::call_withdraw(socket.get(), view.stem, kAnswerTimeoutMs);
  return true;
}

// False when it does not end by `deadline`.
bool stop_keeper(const SocketDir& directory, Clock::time_point deadline) {
  const std::string lock(kKeeperLock);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  const int timeout_ms =
      static_cast<int>(std::clamp<std::int64_t>(left.count(), 100, kAnswerTimeoutMs));
  try {
    const Fd socket = connect_to(directory, std::string(kKeeperSocket), timeout_ms);
    wire::call_stop(socket.get(), {}, timeout_ms);
  } catch (const wire::PeerError& refusal) {
    if (refusal.code() == Errc::kProtocol) throw;  // it is not ours to stop
    log::debug(fmt::format("the keeper: {}", refusal.what()));
  } catch (const Error& error) {
    log::debug(fmt::format("the keeper: {}", error.what()));  // its lock tells whether it is gone
  }
  while (lock_is_held(directory, lock)) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

// A keeper that hangs answers nobody, and has its lock.
bool keeper_runs(const ClientOptions& options) {
  try {
    return lock_is_held(SocketDir::open(options.socket_dir, false), std::string(kKeeperLock));
  } catch (const Error& error) {
    if (error.code() == Errc::kUnavailable) return false;
    throw;
  }
}

// The daemons that were chosen, until they are gone.
class Stop {
 public:
  Stop(const ClientOptions& options, bool job, std::vector<DaemonView> chosen)
      : directory_(SocketDir::open(options.socket_dir, false)), job_(job) {
    for (DaemonView& view : chosen) targets_.push_back({std::move(view), false, false});
  }

  // False when some remain at `deadline`.
  bool run(Clock::time_point deadline) {
    while (true) {
      look();
      if (std::ranges::all_of(targets_, &Target::gone)) return true;
      if (Clock::now() >= deadline) return false;
      std::this_thread::sleep_for(kPollInterval);
    }
  }
  // What cannot hear is killed; one that ends as it was asked to, slowly, is not.
  void kill_suspended();
  ordered_json json() const;
  void report() const;

 private:
  struct Target {
    DaemonView view;
    bool asked;
    bool gone;
    bool killed = false;
  };

  void look() {
    std::vector<DaemonView> now = view_directory(directory_, kAnswerTimeoutMs);
    for (DaemonView& view : view_successors(directory_)) now.push_back(std::move(view));
    for (Target& target : targets_) {
      const auto at = find(now, target);
      target.gone = at == now.end() || !(runs(*at) || at->kept) || is_another(target, *at);
      if (!target.gone && !target.asked) ask(target, *at);
    }
  }
  // By name; a successor may have come into its place meanwhile.
  static std::vector<DaemonView>::const_iterator find(const std::vector<DaemonView>& now,
                                                      const Target& target) {
    const auto at = [&](bool succeeds) {
      return std::ranges::find_if(now, [&](const DaemonView& view) {
        return view.stem == target.view.stem && view.succeeds == succeeds;
      });
    };
    const auto same = at(target.view.succeeds);
    return same == now.end() && target.view.succeeds ? at(false) : same;
  }
  static bool runs(const DaemonView& view) {
    return view.condition == DaemonCondition::kAnswering ||
           view.condition == DaemonCondition::kComing;
  }
  // Somebody may have started a new one in its place: that one was not asked for.
  static bool is_another(const Target& target, const DaemonView& now) {
    const int before = target.view.status().pid;
    const int after = now.status().pid;
    return before != 0 && after != 0 && before != after;
  }
  void ask(Target& target, const DaemonView& now) {
    try {
      if (now.live) {
        target.asked = stop_serving(directory_, now, job_);
      } else {
        target.asked = runs(now) ? stop_loading(directory_, now) : withdraw(directory_, now);
      }
      if (target.asked) target.view = now;
    } catch (const wire::PeerError& refusal) {
      if (refusal.code() == Errc::kProtocol) throw;  // it is not ours to stop
      log::debug(fmt::format("{}: {}", target.view.name(), refusal.what()));
    } catch (const Error& error) {
      // It may be going already: the next look tells.
      log::debug(fmt::format("{}: {}", target.view.name(), error.what()));
    }
  }

  SocketDir directory_;
  bool job_;
  std::vector<Target> targets_;
};

void Stop::kill_suspended() {
  for (Target& target : targets_) {
    if (target.gone) continue;
    // What it was when it still answered may be all that is known of it.
    const std::string state = target.view.stem + ".state";
    target.view.file = read_state(directory_, state);
    const Fd process = pin_holder(directory_, target.view);
    if (!process || !(is_suspended(target.view.file->pid) || !target.asked)) continue;
    try {
      send_signal(process, SIGKILL, target.view);
      target.killed = true;
    } catch (const Error& error) {
      log::warn(error.what());
    }
  }
}

ordered_json Stop::json() const {
  ordered_json daemons = ordered_json::array();
  for (const Target& target : targets_) {
    const wire::DaemonStatus status = target.view.status();
    daemons.push_back({{"gpu_uuid", status.gpu_uuid},
                       {"slot", status.slot},
                       {"role", status.role},
                       {"global_rank", status.global_rank},
                       {"pid", status.pid},
                       {"stopped", target.gone}});
  }
  return {{"daemons", daemons}};
}

void Stop::report() const {
  for (const Target& target : targets_) {
    if (target.killed && target.gone) {
      log::error(
          fmt::format("{} (pid {}) did not answer and was killed: its weights are gone, and "
                      "the rest of its job ends with a failure",
                      target.view.name(), target.view.status().pid));
    }
    if (target.gone) continue;
    const std::string lock = target.view.lock_name();
    const int known = target.view.status().pid;
    const int pid = known != 0 ? known : lock_holder(directory_, lock).value_or(0);
    log::error(
        fmt::format("{} ({}) still holds '{}/{}': {}", target.view.name(),
                    pid != 0 ? fmt::format("pid {}", pid) : "of a pid that it has not said yet",
                    directory_.path(), lock,
                    target.asked ? "it was asked to stop; wait longer with --timeout, or "
                                   "kill it"
                                 : "it could not be asked to stop; kill it"));
  }
}

}  // namespace

int run_stop(const Arguments& arguments) {
  const ParsedOptions parsed("stop", arguments);
  const ClientOptions options = client_options(parsed);
  std::vector<DaemonView> chosen = look_for_running(options);
  const bool with_keeper = parsed.has("keeper") && keeper_runs(options);
  if (chosen.empty() && !with_keeper) {
    if (options.json) fmt::print("{}\n", ordered_json{{"daemons", ordered_json::array()}}.dump(2));
    refuse_none(options, "no daemon runs");
  }
  const std::size_t count = chosen.size();
  Stop stop(options, parsed.has("job"), std::move(chosen));
  const std::chrono::duration<double> limit(options.timeout_s.value_or(kTimeoutS));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  bool gone = stop.run(deadline);
  if (!gone) {
    stop.kill_suspended();
    stop.run(Clock::now() + kKilledEnds);  // what was killed is no success
  }
  const SocketDir directory = SocketDir::open(options.socket_dir, false);
  if (with_keeper && !stop_keeper(directory, deadline)) {
    const auto pid = lock_holder(directory, std::string(kKeeperLock));
    log::error(fmt::format("the keeper{} did not end: wait longer with --timeout, or kill it",
                           pid ? fmt::format(" (pid {})", *pid) : ""));
    gone = false;
  }
  if (options.json) {
    fmt::print("{}\n", stop.json().dump(2));
  } else if (gone) {
    fmt::print("stopped {}\n", counted(count, "daemon"));
  }
  stop.report();
  return gone ? 0 : exit_status(Errc::kTimeout);
}

}  // namespace preload::cli
