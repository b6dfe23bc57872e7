// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/prompt_write.hpp"
#include "cli/command.hpp"
#include "cli/options.hpp"

namespace preload::cli {
namespace {

constexpr Command kCommands[] = {
    {"serve", run_serve},   {"plan", run_plan},           {"status", run_status},
    {"wait", run_wait},     {"attach", run_attach},       {"verify", run_verify},
    {"key", run_key},       {"release", run_release},     {"stop", run_stop},
    {"keeper", run_keeper}, {"tune", run_tune},           {"bench", run_bench},
    {"doctor", run_doctor}, {"artifacts", run_artifacts},
};

const Command* find(const std::string& name) {
  const auto at = std::ranges::find(kCommands, name, &Command::name);
  return at == std::end(kCommands) ? nullptr : &*at;
}

[[noreturn]] void refuse_command(const std::string& name) {
  std::vector<std::string> known;
  for (const Command& command : kCommands) known.emplace_back(command.name);
  const std::optional<std::string> near = nearest(name, known);
  throw Error(Errc::kUsage, fmt::format("unknown command '{}'{}; the commands are {}", name,
                                        near ? fmt::format(": did you mean {}?", *near) : "",
                                        fmt::join(known, ", ")));
}

// Help is asked for anywhere before "--".
bool asks_for_help(const Arguments& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return false;
    if (argument == "--help" || argument == "-h") return true;
  }
  return false;
}

int help(const Arguments& arguments) {
  if (arguments.empty()) {
    fmt::print("{}", help_text());
    return 0;
  }
  if (find(arguments.front()) == nullptr) refuse_command(arguments.front());
  fmt::print("{}", help_text(arguments.front()));
  return 0;
}

int dispatch(Arguments arguments) {
  if (arguments.empty()) {
    fmt::print(stderr, "{}", help_text());
    return exit_status(Errc::kUsage);
  }
  const std::string first = arguments.front();
  if (first == "--version") {
    fmt::print("preload {}\n", PRELOAD_VERSION);
    return 0;
  }
  if (first == "--help" || first == "-h") return help({});
  // Flags alone are serve's.
  const bool bare = first.starts_with('-');
  if (!bare) arguments.erase(arguments.begin());
  if (first == "help") return help(arguments);
  const Command* command = bare ? find("serve") : find(first);
  if (command == nullptr) refuse_command(first);
  if (asks_for_help(arguments)) return help({std::string(command->name)});
  return command->run(arguments);
}

// The only place where an exception ends: text to the log, code to the launcher.
int guarded(int argc, char** argv) {
  try {
    log::set_up(log::Level::kInfo, "");
    const int status = dispatch(Arguments(argv + std::min(argc, 1), argv + argc));
    if (std::fflush(stdout) != 0) {
      throw Error(Errc::kInternal, "standard output cannot be written");
    }
    return status;
  } catch (const Cancelled& cancelled) {
    log::error(cancelled.what());
    return cancelled.status();
  } catch (const Error& error) {
    log::error(error.what());
    return exit_status(error.code());
  } catch (const std::bad_alloc&) {
    log::error("out of host memory");
    return exit_status(Errc::kMemory);
  } catch (const std::exception& error) {
    log::error(fmt::format("unexpected: {}", error.what()));
    return exit_status(Errc::kInternal);
  }
}

}  // namespace
}  // namespace preload::cli

int main(int argc, char** argv) {
  preload::open_standard_descriptors();
  return preload::cli::guarded(argc, argv);
}
