// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
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
// A failure counts when nobody takes the lock again in that time: restarts overlap with waits.
constexpr Seconds kGrace{3};
constexpr auto kPollInterval = std::chrono::milliseconds(100);

bool is_failure(Verdict verdict) {
  return verdict == Verdict::kFailed || verdict == Verdict::kDead;
}

class Wait {
 public:
  explicit Wait(const ClientOptions& options, std::optional<std::string> job)
      : options_(options), job_(std::move(job)) {}

  // Looks until there is something final to say.
  JobView run() {
    while (true) {
      JobView view = view_job(look(options_), job_, options_.gpu ? std::optional(1) : std::nullopt);
      if (is_final(view)) return view;
      std::this_thread::sleep_for(kPollInterval);
    }
  }

 private:
  bool is_final(const JobView& view) {
    const auto now = Clock::now();
    if (view.verdict == Verdict::kReady || view.verdict == Verdict::kReleased) return true;
    if (!is_failure(view.verdict)) failing_since_.reset();
    if (is_failure(view.verdict) && !failing_since_) failing_since_ = now;
    if (failing_since_ && now - *failing_since_ >= kGrace) return true;
    if (view.verdict != Verdict::kNothing) seen_ = true;
    const bool bounded_by_appearance = !options_.timeout_s && !seen_;
    return now - begin_ >= (bounded_by_appearance ? kAppearance : limit());
  }
  Seconds limit() const { return options_.timeout_s ? Seconds(*options_.timeout_s) : kTimeout; }

  const ClientOptions& options_;
  std::optional<std::string> job_;
  Clock::time_point begin_ = Clock::now();
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
    fmt::print("{}\n", view.text);
  }
  return status;
}

}  // namespace preload::cli
