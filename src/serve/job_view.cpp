// SPDX-License-Identifier: Apache-2.0
#include "serve/job_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/counted.hpp"

namespace preload {
namespace {

// Left by a job that another one was in the way of. That one is not the older for it.
bool is_turned_away(const DaemonView& view) {
  return view.condition == DaemonCondition::kFailed && view.file->code == wire_code(Errc::kBusy);
}

// Of no consequence but to who waited for that very job: the daemon that was to be replaced serves.
bool has_failed_to_succeed(const DaemonView& view) {
  return view.succeeds && view.condition == DaemonCondition::kFailed;
}

// The job whose daemons wrote their state last.
std::optional<std::string> newest_job(const std::vector<DaemonView>& views) {
  const bool all_turned_away = std::ranges::all_of(views, is_turned_away);
  std::optional<std::string> job;
  std::int64_t newest = -1;
  for (const DaemonView& view : views) {
    if (has_failed_to_succeed(view)) continue;
    const std::int64_t time_ms = view.file ? view.file->time_ms : 0;
    if (time_ms <= newest || (is_turned_away(view) && !all_turned_away)) continue;
    newest = time_ms;
    job = view.status().job;
  }
  return job;
}

// A held lock whose holder has not written its state yet.
bool is_unannounced(const DaemonView& view) {
  return view.condition == DaemonCondition::kComing && !view.file;
}

const DaemonView* find(const std::vector<DaemonView>& views, DaemonCondition condition) {
  const auto it = std::ranges::find(views, condition, &DaemonView::condition);
  return it == views.end() ? nullptr : &*it;
}

const DaemonView* find_released(const std::vector<DaemonView>& views) {
  for (const DaemonView& view : views)
    if (view.live && (view.live->state == wire::DaemonState::kReleased ||
                      view.live->state == wire::DaemonState::kDraining))
      return &view;
  return nullptr;
}

void count_ready(JobView& view, std::optional<int> expected) {
  int ready = 0;
  std::map<std::string, int> announced;  // by role
  for (const DaemonView& daemon : view.daemons) {
    const wire::DaemonStatus status = daemon.status();
    if (status.state == wire::DaemonState::kReady) ++ready;
    int& size = announced[status.role];
    size = std::max(size, status.local_size);
  }
  // All locks are taken and announced before the first daemon of a job is READY.
  int wanted = 0;
  for (const auto& [role, size] : announced) wanted += expected.value_or(size);
  view.verdict = ready >= wanted ? JobView::Verdict::kReady : JobView::Verdict::kPending;
  view.text = fmt::format("{} of {} of job {} READY", ready, counted(wanted, "daemon"), view.job);
}

}  // namespace

JobView view_job(const std::vector<DaemonView>& views, const std::optional<std::string>& job,
                 std::optional<int> expected) {
  JobView view;
  // A daemon that has the lock and has not said more may belong to a newer job.
  if (!job && std::ranges::any_of(views, is_unannounced)) {
    view.verdict = JobView::Verdict::kPending;
    view.text = "a daemon has taken its lock and has not begun to load";
    return view;
  }
  view.job = job ? *job : newest_job(views).value_or("");
  for (const DaemonView& daemon : views)
    if (!is_unannounced(daemon) && daemon.status().job == view.job) view.daemons.push_back(daemon);
  if (view.daemons.empty()) {
    view.text = job ? fmt::format("no daemon of job {} is there", *job) : "no daemon is there";
    return view;
  }
  if (const DaemonView* failed = find(view.daemons, DaemonCondition::kFailed)) {
    view.verdict = JobView::Verdict::kFailed;
    view.code = failed->file->code;
    view.text = fmt::format("{} failed: {}", failed->name(), failed->file->text);
    view.exit_status = failed->file->exit_status == 0 ? 1 : failed->file->exit_status;
  } else if (const DaemonView* dead = find(view.daemons, DaemonCondition::kDead)) {
    view.verdict = JobView::Verdict::kDead;
    view.code = dead->status().code;
    view.text = fmt::format("{}: {}", dead->name(), dead->status().text);
  } else if (const DaemonView* released = find_released(view.daemons)) {
    view.verdict = JobView::Verdict::kReleased;
    view.code = wire_code(Errc::kReleased);
    view.text =
        fmt::format("{} released its weights: it will not be READY again", released->name());
  } else {
    count_ready(view, expected);
  }
  return view;
}

}  // namespace preload
