// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <chrono>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/stop_signals.hpp"
#include "cli/command.hpp"
#include "cli/serve_options.hpp"
#include "serve/descriptor_budget.hpp"
#include "serve/keeper.hpp"

namespace preload::cli {
namespace {

KeeperOptions keeper_options(const ParsedOptions& parsed) {
  KeeperOptions options;
  options.stay = parsed.has("stay");
  if (options.stay) {
    if (parsed.has("idle-timeout"))
      throw Error(Errc::kUsage, "--stay and --idle-timeout contradict each other: give one");
    options.orphan.reset();
  }
  using Seconds = std::chrono::duration<double>;
  if (const auto idle = parsed.seconds("idle-timeout")) options.idle = Seconds(*idle);
  if (const auto orphan = parsed.seconds("orphan-timeout")) options.orphan = Seconds(*orphan);
  return options;
}

// Blocked before anything is set up, so that none is missed; one thread has them all.
Fd watch_signals() {
  const sigset_t set = stop_signals();
  check_sys(::sigprocmask(SIG_BLOCK, &set, nullptr), "blocking signals");
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);  // a file size limit then is an error with a message
  return Fd(static_cast<int>(check_sys(::signalfd(-1, &set, SFD_CLOEXEC), "signalfd")));
}

}  // namespace

int run_keeper(const Arguments& arguments) {
  const ParsedOptions parsed("keeper", arguments);
  log::set_up(log_level_option(parsed), "keeper");
  raise_descriptor_limit();
  const Fd signals = watch_signals();
  const SocketDir directory = SocketDir::open(socket_dir_option(parsed), true);
  KeeperOptions options = keeper_options(parsed);
  options.sessions.allow_uids = directory.allow_uids();
  Keeper keeper(directory, std::move(options));
  log::info(fmt::format("keeps what daemons of '{}' deposit", directory.path()));
  return keeper.run(signals);
}

}  // namespace preload::cli
