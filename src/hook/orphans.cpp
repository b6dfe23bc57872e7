// SPDX-License-Identifier: Apache-2.0
#include "hook/orphans.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "hook/process_tree.hpp"

namespace preload::hook {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLongest{5'000};
constexpr milliseconds kAgain{20};  // for what was forked meanwhile

}  // namespace

Orphans::Orphans() {
  for (const pid_t pid : descendants(::getpid())) before_.insert(pid);
  ::prctl(PR_GET_CHILD_SUBREAPER, &adopted_before_);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Orphans::~Orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, adopted_before_); }

void Orphans::end() noexcept try {
  const auto deadline = Clock::now() + kLongest;
  std::set<pid_t> ended;
  for (;;) {
    std::vector<pid_t> left = descendants(::getpid());
    std::erase_if(left, [&](pid_t pid) { return before_.contains(pid); });
    signal_all(left, SIGKILL);
    ended.insert(left.begin(), left.end());
    // Those of deeper levels become children as their parents end.
    std::erase_if(ended, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
    if (left.empty() || Clock::now() >= deadline) return;
    std::this_thread::sleep_for(kAgain);
  }
} catch (const std::exception& error) {
  log::warn(error.what());
}

}  // namespace preload::hook
