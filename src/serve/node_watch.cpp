// SPDX-License-Identifier: Apache-2.0
#include "serve/node_watch.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/host_limits.hpp"
#include "base/log.hpp"
#include "memory/nvml.hpp"
#include "serve/connect.hpp"
#include "serve/directory_view.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

using Clock = std::chrono::steady_clock;
using wire::DaemonState;

constexpr std::chrono::milliseconds kAnswerTime{300};
constexpr std::chrono::milliseconds kStale{2000};

std::string name_of(const StateFile& file) {
  return fmt::format("rank {} ({}{}{})", file.global_rank, file.device,
                     file.slot.empty() ? "" : " slot " + file.slot,
                     file.role == role_name(Role::kDraft) ? " draft" : "");
}

// In the order in which they explain a node that does not serve.
enum class Trouble { kFailed, kSilent, kReleased, kLoading, kNone };

Trouble trouble_of(const DaemonPulse& pulse) {
  if (pulse.answer == DaemonState::kReady) return Trouble::kNone;
  if (pulse.answer == DaemonState::kReleased || pulse.answer == DaemonState::kDraining)
    return Trouble::kReleased;
  if (pulse.answer || pulse.file.state == "LOADING") return Trouble::kLoading;
  return pulse.file.state == "FAILED" ? Trouble::kFailed : Trouble::kSilent;
}

std::optional<wire::HelloReply> hello_at(const SocketDir& directory, const std::string& socket_name,
                                         std::chrono::milliseconds timeout) noexcept {
  try {
    const int ms = static_cast<int>(timeout.count());
    const Fd socket = connect_to(directory, socket_name, ms);
    return wire::call_hello(socket.get(), {{::getpid(), "preload health", PRELOAD_VERSION}}, ms);
  } catch (const std::exception& error) {
    log::debug(error.what());
    return std::nullopt;
  }
}

std::string loading_text(const std::vector<DaemonPulse>& pulses) {
  std::uint64_t bytes = 0, total = 0;
  for (const DaemonPulse& pulse : pulses) {
    bytes += pulse.file.progress.bytes;
    total += pulse.file.progress.total_bytes;
  }
  if (total == 0) return "the job's ranks plan what to load";
  return fmt::format("{} of {} are loaded on this node", format_bytes(bytes), format_bytes(total));
}

}  // namespace

Health judge(const std::vector<DaemonPulse>& pulses, int expected) {
  Health health;
  health.expected = expected;
  Trouble worst = Trouble::kNone;
  const DaemonPulse* culprit = nullptr;
  for (const DaemonPulse& pulse : pulses) {
    const Trouble trouble = trouble_of(pulse);
    if (trouble == Trouble::kNone) ++health.ready;
    if (trouble >= worst) continue;
    worst = trouble;
    culprit = &pulse;
  }
  switch (worst) {
    case Trouble::kFailed:
      health.state = "FAILED";
      health.reason = fmt::format("{} failed: {}", name_of(culprit->file), culprit->file.text);
      return health;
    case Trouble::kSilent:
      health.state = "FAILED";
      health.reason = fmt::format("{} does not answer at its socket", name_of(culprit->file));
      return health;
    case Trouble::kReleased:
      health.state = std::string(wire::state_name(*culprit->answer));
      health.reason = fmt::format("{} released its weights", name_of(culprit->file));
      return health;
    case Trouble::kLoading:
      health.state = "LOADING";
      health.reason = loading_text(pulses);
      return health;
    case Trouble::kNone:
      break;
  }
  if (pulses.empty()) {
    health.state = "LOADING";
    health.reason = "the node's daemons have just started";
    return health;
  }
  health.healthy = health.ready >= expected;
  health.state = health.healthy ? "READY" : "DEGRADED";
  health.reason = fmt::format("{} of the node's {} daemons serve", health.ready, expected);
  return health;
}

bool daemon_answers(const SocketDir& directory, const std::string& socket_name,
                    std::chrono::milliseconds timeout) noexcept {
  return hello_at(directory, socket_name, timeout).has_value();
}

NodeWatch::NodeWatch(const SocketDir& directory, std::string job, int expected)
    : directory_(directory), job_(std::move(job)), expected_(expected), looked_(Clock::now()) {
  health_ = {false, "LOADING", "the daemon has just started", 0, expected_};
  thread_ = std::thread([this] { run(); });
}

NodeWatch::~NodeWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NodeWatch::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    const std::uint64_t asked = asked_;
    const bool in_full = asked != answered_;
    const int expected = expected_;
    lock.unlock();
    std::optional<Health> health;
    std::optional<NodeReport> report;
    try {
      health = judge(feel(), expected);
      if (in_full) report = ask();
    } catch (const std::exception& error) {
      health = {false, "FAILED",
                fmt::format("the node's daemons cannot be looked at: {}", error.what()), 0,
                expected_};
    }
    lock.lock();
    health_ = std::move(*health);
    looked_ = Clock::now();
    if (report) report_ = std::move(*report);
    answered_ = asked;
    changed_.notify_all();
    changed_.wait_for(lock, kPeriod, [&] { return stop_ || asked_ != answered_; });
  }
}

std::vector<DaemonPulse> NodeWatch::feel() const {
  constexpr std::string_view kSuffix = ".state";
  const std::string boot = current_boot_id();
  std::vector<DaemonPulse> pulses;
  for (const std::string& name : directory_.list()) {
    if (!name.ends_with(kSuffix) || name.starts_with('.')) continue;
    auto file = read_state(directory_, name);
    if (!file || file->job != job_ || file->boot_id != boot) continue;
    const std::string stem = name.substr(0, name.size() - kSuffix.size());
    DaemonPulse pulse{std::move(*file), std::nullopt};
    // While it loads there is no socket yet, and a predecessor's may be there. But a file that says
    // LOADING may be left by a daemon that has found no room for another word.
    if (pulse.file.state != "FAILED") {
      const auto hello = hello_at(directory_, stem + ".sock", kAnswerTime);
      if (hello && (pulse.file.state == "READY" || hello->pid == pulse.file.pid))
        pulse.answer = hello->state;
    }
    pulses.push_back(std::move(pulse));
  }
  return pulses;
}

NodeReport NodeWatch::ask() const {
  NodeReport report;
  std::set<std::string> devices;
  for (const DaemonView& view : view_directory(directory_, static_cast<int>(kAnswerTime.count()))) {
    wire::DaemonStatus status = view.status();
    if (status.job != job_) continue;
    if (devices.insert(status.gpu_uuid).second) {
      if (status.gpu_uuid.starts_with("host:")) {
        const HostMemory host = host_memory();
        report.devices.push_back({status.gpu_uuid, host.available_bytes, host.total_bytes});
      } else if (const auto device = query_nvml(status.gpu_uuid)) {
        report.devices.push_back({status.gpu_uuid, device->free_bytes, device->total_bytes});
      }
    }
    report.daemons.push_back(std::move(status));
  }
  return report;
}

void NodeWatch::expect(int daemons) {
  const std::lock_guard lock(mutex_);
  expected_ = daemons;
}

Health NodeWatch::health() const {
  const std::lock_guard lock(mutex_);
  const auto age = Clock::now() - looked_;
  if (!health_.healthy || age < kStale) return health_;
  return {false, "FAILED",
          fmt::format("the node's daemons have not answered for {:.0f} s",
                      std::chrono::duration<double>(age).count()),
          0, expected_};
}

NodeReport NodeWatch::report(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const std::uint64_t mine = ++asked_;
  changed_.notify_all();
  changed_.wait_for(lock, patience, [&] { return answered_ >= mine; });
  return report_;
}

}  // namespace preload
