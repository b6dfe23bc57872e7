// SPDX-License-Identifier: Apache-2.0
#include "serve/directory_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.hpp"
#include "base/log.hpp"
#include "serve/connect.hpp"
#include "serve/keeper.hpp"
#include "wire/exchange.hpp"

namespace preload {
namespace {

constexpr std::size_t kHashDigits = 16;
constexpr std::string_view kDraftSuffix = "_draft";
constexpr std::string_view kNextLock = ".next.lock";
constexpr std::array<std::string_view, 3> kSuffixes{".lock", ".state", ".sock"};

// <h>[.<slot>][_draft]; not the keeper's names, a successor's lock or a temporary file.
bool is_stem(std::string_view stem) {
  if (stem.size() < kHashDigits) return false;
  const auto hash = stem.substr(0, kHashDigits);
  if (hash.find_first_not_of("0123456789abcdef") != std::string_view::npos) return false;
  auto rest = stem.substr(kHashDigits);
  if (rest.ends_with(kDraftSuffix)) rest.remove_suffix(kDraftSuffix.size());
  if (rest.empty()) return true;
  return rest.front() == '.' && rest.size() > 1 && rest != ".next" &&
         rest.find('.', 1) == std::string_view::npos;
}

std::set<std::string> stems(const SocketDir& directory) {
  std::set<std::string> found;
  for (const std::string& name : directory.list())
    for (const std::string_view suffix : kSuffixes)
      if (name.ends_with(suffix)) {
        const std::string stem = name.substr(0, name.size() - suffix.size());
        if (is_stem(stem)) found.insert(stem);
      }
  return found;
}

std::optional<wire::DaemonStatus> ask(const SocketDir& directory, const std::string& stem,
                                      int timeout_ms) {
  Fd socket;
  try {
    socket = connect_to(directory, stem + ".sock", timeout_ms);
  } catch (const Error& error) {
    if (error.code() == Errc::kUnavailable) return std::nullopt;
    throw;
  }
  try {
    return wire::call_status(socket.get(), timeout_ms);
  } catch (const Error& error) {
    log::warn(fmt::format("the daemon at '{}/{}.sock' gave no status: {}", directory.path(), stem,
                          error.what()));
    return std::nullopt;
  }
}

std::optional<StateFile> state_of_this_boot(const SocketDir& directory, const std::string& name) {
  auto state = read_state(directory, name);
  if (state && state->boot_id != current_boot_id()) state.reset();
  return state;
}

std::optional<DaemonView> look_at(const SocketDir& directory, const std::string& stem,
                                  int timeout_ms) {
  DaemonView view;
  view.stem = stem;
  const std::string lock = stem + ".lock";
  view.live = ask(directory, stem, timeout_ms);
  const bool held = lock_is_held(directory, lock);
  view.file = state_of_this_boot(directory, stem + ".state");
  if (view.live) {
    view.condition = DaemonCondition::kAnswering;
  } else if (held) {
    view.condition = DaemonCondition::kComing;
    // Until the holder has written its own, the file is its predecessor's.
    const auto holder = lock_holder(directory, lock);
    if (view.file && holder && *holder != view.file->pid) view.file.reset();
  } else if (!view.file) {
    return std::nullopt;  // an old lock file or socket: nobody is there
  } else {
    view.condition =
        view.file->state == "FAILED" ? DaemonCondition::kFailed : DaemonCondition::kDead;
  }
  return view;
}

}  // namespace

wire::DaemonStatus status_of(const StateFile& file) {
  wire::DaemonStatus status;
  status.gpu_uuid = file.device;
  status.slot = file.slot;
  status.role = file.role;
  status.job = file.job;
  status.pid = file.pid;
  status.global_rank = file.global_rank;
  status.model = file.model;
  status.bytes = file.progress.total_bytes;
  status.progress = file.progress;
  status.local_size = file.local_size;
  return status;
}

wire::DaemonStatus DaemonView::status() const {
  if (live) return *live;
  if (kept && condition != DaemonCondition::kComing) {
    wire::DaemonStatus orphan = *kept;
    orphan.code = wire_code(Errc::kUnexpectedEnd);
    orphan.text = "its daemon is gone; the keeper has its weights until a successor takes them";
    if (condition == DaemonCondition::kFailed) {
      orphan.code = file->code;
      orphan.text = file->text;
    }
    return orphan;
  }
  wire::DaemonStatus status;
  status.role = role_name(stem.ends_with(kDraftSuffix) ? Role::kDraft : Role::kTarget);
  if (file) status = status_of(*file);
  if (condition == DaemonCondition::kComing) return status;
  status.state = wire::DaemonState::kFailed;
  status.code = file ? file->code : "";
  status.text = file ? file->text : "";
  if (condition == DaemonCondition::kDead) {
    status.code = wire_code(Errc::kUnexpectedEnd);
    status.text = fmt::format("pid {} ended without a word; it was {}: start preload again",
                              status.pid, file ? file->state : "loading");
  }
  return status;
}

std::string DaemonView::name() const {
  const wire::DaemonStatus known = status();
  const std::string device = known.gpu_uuid.empty() ? stem : known.gpu_uuid;
  return device + (known.slot.empty() ? "" : " slot " + known.slot) +
         (known.role == role_name(Role::kDraft) ? " draft" : "");
}

std::optional<wire::KeeperStatus> view_keeper(const SocketDir& directory, int timeout_ms) {
  try {
    const Fd socket = connect_to(directory, std::string(kKeeperSocket), timeout_ms);
    return wire::call_keeper_status(socket.get(), timeout_ms);
  } catch (const Error& error) {
    if (error.code() != Errc::kUnavailable) log::warn(fmt::format("keeper: {}", error.what()));
    return std::nullopt;
  }
}

namespace {

void add_kept(wire::DaemonStatus kept, std::vector<DaemonView>& views) {
  const Role role = kept.role == role_name(Role::kDraft) ? Role::kDraft : Role::kTarget;
  const std::string stem = Endpoint{kept.gpu_uuid, kept.slot, role}.stem();
  auto at = std::ranges::find(views, stem, &DaemonView::stem);
  if (at == views.end()) {
    at = views.insert(std::ranges::lower_bound(views, stem, {}, &DaemonView::stem), DaemonView{});
    at->stem = stem;
  }
  if (!at->live) at->kept = std::move(kept);
}

}  // namespace

std::vector<DaemonView> view_directory(const SocketDir& directory, int timeout_ms) {
  std::vector<DaemonView> views;
  for (const std::string& stem : stems(directory))
    if (auto view = look_at(directory, stem, timeout_ms)) views.push_back(std::move(*view));
  if (auto keeper = view_keeper(directory, timeout_ms))
    for (wire::DaemonStatus& deposit : keeper->deposits)
      if (deposit.state != wire::DaemonState::kLoading) add_kept(std::move(deposit), views);
  return views;
}

std::vector<DaemonView> view_successors(const SocketDir& directory) {
  std::vector<DaemonView> views;
  for (const std::string& name : directory.list()) {
    if (!name.ends_with(kNextLock)) continue;
    DaemonView view;
    view.stem = name.substr(0, name.size() - kNextLock.size());
    view.succeeds = true;
    if (!is_stem(view.stem)) continue;
    const bool held = lock_is_held(directory, name);
    view.file = state_of_this_boot(directory, view.stem + ".next.state");
    if (held) {
      view.condition = DaemonCondition::kComing;
      const auto holder = lock_holder(directory, name);
      if (view.file && holder && *holder != view.file->pid) view.file.reset();
    } else if (view.file && view.file->state == "FAILED") {
      view.condition = DaemonCondition::kFailed;
    } else {
      continue;  // it serves in its place by now, or died without a word: the old one goes on
    }
    views.push_back(std::move(view));
  }
  return views;
}

// By name, so that a daemon that has not said a word yet is found as well.
bool DaemonFilter::admits(const DaemonView& view) const {
  const bool is_draft = view.stem.ends_with(kDraftSuffix);
  if (role && is_draft != (*role == Role::kDraft)) return false;
  const std::string_view stem = view.stem;
  if (device && stem.substr(0, kHashDigits) != Endpoint{*device, "", Role::kTarget}.stem())
    return false;
  if (!slot) return true;
  auto rest = stem.substr(kHashDigits);
  if (is_draft) rest.remove_suffix(kDraftSuffix.size());
  return rest == (slot->empty() ? "" : "." + *slot);
}

std::vector<DaemonView> view_directory(const SocketDir& directory, const DaemonFilter& filter,
                                       int timeout_ms) {
  std::vector<DaemonView> views = view_directory(directory, timeout_ms);
  std::erase_if(views, [&](const DaemonView& view) { return !filter.admits(view); });
  return views;
}

}  // namespace preload
