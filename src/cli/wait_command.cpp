// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/printable.hpp"
#include "cli/command.hpp"
#include "cli/daemon_views.hpp"
#include "serve/job_view.hpp"

namespace preload::cli {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using Verdict = JobView::Verdict;

constexpr Seconds kTimeout{600};
// Without a timeout of the user's own: how long nothing at all may be there.
constexpr Seconds kAppearance{30};
// A failure from before the wait counts when nobody takes the lock again in that time: what is
// waited for may have been started a moment ago and not be there yet.
constexpr Seconds kGrace{3};
constexpr auto kPollInterval = std::chrono::milliseconds(100);

bool is_failure(Verdict verdict) {
  return verdict == Verdict::kFailed || verdict == Verdict::kDead;
}

std::int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

class Wait {
 public:
  explicit Wait(const ClientOptions& options, std::optional<std::string> job)
      : options_(options), job_(std::move(job)) {}

  // Looks until there is something final to say.
  JobView run() {
    while (true) {
      JobView view = view_job(look_with_successors(options_), job_,
                              options_.gpu ? std::optional(1) : std::nullopt);
      if (is_final(view)) return view;
      // Whoever waits for a successor is not content with the daemon that it fails to replace.
      if (!job_ && std::ranges::any_of(view.daemons, &DaemonView::succeeds)) job_ = view.job;
      std::this_thread::sleep_for(kPollInterval);
    }
  }

 private:
  bool is_final(const JobView& view) {
    const auto now = Clock::now();
    const bool fresh = is_fresh(view);
    if (view.verdict == Verdict::kReady || view.verdict == Verdict::kReleased) return true;
    if (!is_failure(view.verdict)) failing_since_.reset();
    if (is_failure(view.verdict) && !failing_since_) failing_since_ = now;
    if (failing_since_ && (fresh || now - *failing_since_ >= kGrace)) return true;
    if (view.verdict != Verdict::kNothing) seen_ = true;
    const bool bounded_by_appearance = !options_.timeout_s && !seen_;
    return now - begin_ >= (bounded_by_appearance ? kAppearance : limit());
  }

  // Whether what has failed ran while this waited: then it is what was waited for, and its failure
  // is told at once. `seen_pids_` does not depend on the clock, which may be set meanwhile.
  bool is_fresh(const JobView& view) {
    bool fresh = false;
    for (const DaemonView& daemon : view.daemons) {
      const int pid = daemon.status().pid;
      if (daemon.condition == DaemonCondition::kAnswering ||
          daemon.condition == DaemonCondition::kComing) {
        if (pid != 0) seen_pids_.insert(pid);
      } else if (daemon.file) {
        const bool said_now =
            daemon.condition == DaemonCondition::kFailed && daemon.file->time_ms >= begin_ms_;
        fresh = fresh || said_now || seen_pids_.contains(pid);
      }
    }
    return fresh;
  }

  Seconds limit() const { return options_.timeout_s ? Seconds(*options_.timeout_s) : kTimeout; }

  const ClientOptions& options_;
  std::optional<std::string> job_;
  const Clock::time_point begin_ = Clock::now();
  const std::int64_t begin_ms_ = now_ms();
  std::set<int> seen_pids_;
  std::optional<Clock::time_point> failing_since_;
  bool seen_ = false;
};

int status_of(const JobView& view) {
  switch (view.verdict) {
    case Verdict::kReady:
      return 0;
    case Verdict::kFailed:
      return view.exit_status;
    case Verdict::kDead:
      return exit_status(Errc::kUnexpectedEnd);
    case Verdict::kReleased:
      return exit_status(Errc::kReleased);
    case Verdict::kPending:
    case Verdict::kNothing:
      break;
  }
  return exit_status(Errc::kUnavailable);
}

void print_json(const JobView& view) {
  ordered_json daemons = ordered_json::array();
  for (const DaemonView& daemon : view.daemons)
    daemons.push_back(ordered_json::parse(wire::to_json(daemon.status())));
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? ordered_json(nullptr) : ordered_json(text);
  };
  fmt::print("{}\n", ordered_json{{"ready", view.verdict == Verdict::kReady},
                                  {"job", text_or_null(view.job)},
                                  {"code", text_or_null(view.code)},
                                  {"text", view.text},
                                  {"daemons", daemons}}
                         .dump(2));
}

}  // namespace

int run_wait(const Arguments& arguments) {
  const ParsedOptions parsed("wait", arguments);
  const ClientOptions options = client_options(parsed);
  const JobView view = Wait(options, parsed.text("job")).run();
  const int status = status_of(view);
  if (options.json) print_json(view);
  if (status != 0) {
    log::error(view.code.empty() ? "not ready in time: " + view.text
                                 : fmt::format("{} ({})", view.text, view.code));
  } else if (!options.json) {
    fmt::print("{}\n", one_line(view.text));
  }
  return status;
}

}  // namespace preload::cli
