// SPDX-License-Identifier: Apache-2.0
#include "doctor/directory_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.hpp"

namespace preload::doctor {
namespace {

constexpr const char* kDirectory = "socket directory";
constexpr const char* kDaemons = "daemons";
constexpr const char* kKeeper = "keeper";
constexpr int kAnswerMs = 1000;

}  // namespace

Check check_directory(const std::string& given) {
  try {
    return ok(kDirectory, SocketDir::open(given, false).path());
  } catch (const Error& error) {
    // Not there: `serve` makes it.
    if (error.code() == Errc::kUnavailable)
      return ok(kDirectory, "not there yet: the first daemon makes it");
    return fail(kDirectory, error.code(), error.what(),
                "see above, or choose another with --weight-cache-socket-dir");
  }
}

Check judge_daemons(const std::vector<DaemonView>& views) {
  int answering = 0;
  int coming = 0;
  std::vector<std::string> troubles;
  for (const DaemonView& view : views) {
    switch (view.condition) {
      case DaemonCondition::kAnswering:
        ++answering;
        break;
      case DaemonCondition::kComing:
        ++coming;
        break;
      case DaemonCondition::kFailed:
      case DaemonCondition::kDead:
        troubles.push_back(fmt::format("{}: {}", view.name(), view.status().text));
        break;
    }
  }
  const std::string text = fmt::format("{} answer, {} load", answering, coming);
  if (troubles.empty()) return ok(kDaemons, text);
  return warn(
      kDaemons, fmt::format("{}; left by others: {}", text, fmt::join(troubles, "; ")),
      "nothing is in the way: the next daemon of the device and slot takes the place; until "
      "then clients are told of the failure");
}

Check judge_keeper(bool running, bool lock_held) {
  if (running) return ok(kKeeper, "one runs");
  if (lock_held) {
    return warn(kKeeper, "one holds its lock and does not answer",
                "look at its log; end it (its pid is in keeper.lock) and start `preload keeper` "
                "again");
  }
  return ok(kKeeper, "none: weights end with their daemon");
}

Checks check_daemons(const std::string& given) {
  try {
    const SocketDir directory = SocketDir::open(given, false);
    Checks checks{judge_daemons(view_directory(directory, kAnswerMs))};
    checks.push_back(judge_keeper(view_keeper(directory, kAnswerMs).has_value(),
                                  lock_is_held(directory, "keeper.lock")));
    return checks;
  } catch (const Error& error) {
    if (error.code() == Errc::kUnavailable) return {};
    return {fail(kDaemons, error.code(), error.what(), "remove what is in the way")};
  }
}

}  // namespace preload::doctor
