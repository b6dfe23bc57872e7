// SPDX-License-Identifier: Apache-2.0
#include "run/job_front.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/log.hpp"
#include "base/printable.hpp"
#include "base/prompt_write.hpp"

namespace preload::run {
namespace {

constexpr std::chrono::milliseconds kAnswers{1000};
// For a pipe that is full at this moment; the rank serves meanwhile.
constexpr std::chrono::milliseconds kReadyPatience{2000};

}  // namespace

JobFront::JobFront(const cli::ServeOptions& options, const Launch& launch,
                   const RankControl& control)
    : options_(options),
      launch_(launch),
      control_(control),
      start_(std::chrono::steady_clock::now()) {}

void JobFront::open(const SocketDir& directory, int expected) {
  directory_ = &directory;
  if (launch_.place.local != 0 || options_.health_port == 0) return;
  HealthEndpoint::Options health;
  health.host = options_.health_host;
  health.port = options_.health_port;
  health.job = launch_.job;
  health.expected = expected;
  health.successor = options_.replace;
  health.ending = [this]() -> std::optional<std::string> {
    const auto end = control_.decided();
    return end ? std::optional(end->text) : std::nullopt;
  };
  health_.emplace(directory, std::move(health));
}

void JobFront::expect(int daemons) {
  if (health_) health_->expect(daemons);
}

void JobFront::progress(const std::string& text) {
  if (is_rank_0()) manager_.status(text);
}

// A service manager with a watchdog hears that this rank lives for as long as a client could tell.
void JobFront::watch(const std::string& socket_name) {
  if (!is_rank_0()) return;
  manager_.watch([this, socket_name] {
    return control_.decided().has_value() || daemon_answers(*directory_, socket_name, kAnswers);
  });
}

void JobFront::ready(HandleKind kind, std::uint64_t rank_bytes) {
  if (!is_rank_0()) return;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const std::string line = fmt::format(
      "preload: READY model={} job={} ranks={} dp={} pp={} tp={} memory={} "
      "rank_bytes={} seconds={:.2f}{} directory={}\n",
      one_line(options_.model.model), launch_.job, launch_.sizes.world(), launch_.sizes.dp,
      launch_.sizes.pp, launch_.sizes.tp, handle_kind_name(kind), rank_bytes, seconds,
      warmup_.empty() ? "" : fmt::format(" warmup={}", one_line(warmup_)),
      one_line(directory_->path()));
  if (!write_promptly(STDERR_FILENO, line, kReadyPatience)) {
    log::warn("the READY line did not get out: nobody reads stderr");
  }
  if (!engine_caches_.empty()) {
    log::info(fmt::format("engines find what the warm-up left with: . {}/environment.sh",
                          engine_caches_));
  }
  manager_.ready(
      fmt::format("serving {} on {} ranks", options_.model.model, launch_.sizes.world()));
}

void JobFront::serving() {
  if (health_) health_->expect_port();
}

void JobFront::close_health() { health_.reset(); }

void JobFront::stopping() {
  if (is_rank_0()) manager_.stopping();
}

}  // namespace preload::run
