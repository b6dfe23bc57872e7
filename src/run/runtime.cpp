// SPDX-License-Identifier: Apache-2.0
#include "run/runtime.hpp"

#include <fmt/format.h>

#include <functional>
#include <new>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/prompt_write.hpp"
#include "bench/load_bench.hpp"
#include "cli/serve_options.hpp"
#include "cli/tuning_options.hpp"
#include "comm/launcher.hpp"
#include "comm/mpi_session.hpp"
#include "doctor/gpu_checks.hpp"
#include "hook/environment.hpp"
#include "hook/supervisor.hpp"
#include "run/serve.hpp"
#include "run/tune.hpp"
#include "serve/descriptor_budget.hpp"

namespace preload::run {
namespace {

int serve_command(const std::vector<std::string>& arguments, const MakeBackend& backend) {
  log::set_up(log::Level::kInfo, host_name());
  const Launcher launcher = detect_launcher();
  log::set_rank(launcher.rank.value_or(0), "");
  raise_descriptor_limit();
  cli::ServeOptions options = cli::parse_serve_options(arguments);
  options.warmup.inherited = hook::own_environment();  // before backend() names NCCL's plugin
  log::set_up(options.log_level, host_name());
  log::set_rank(launcher.rank.value_or(0), "");
  return serve(options, launcher, options.tuning.disabled ? warmup::Backend{} : backend());
}

int tune_command(const std::vector<std::string>& arguments, const MakeBackend& backend) {
  log::set_up(log::Level::kInfo, host_name());
  const Launcher launcher = detect_launcher();
  log::set_rank(launcher.rank.value_or(0), "");
  const cli::TuneOptions options = cli::parse_tune_options(arguments);
  log::set_up(options.serve.log_level, host_name());
  log::set_rank(launcher.rank.value_or(0), "");
  return tune(options, launcher, backend());
}

int bench_command(const std::vector<std::string>& arguments) {
  log::set_up(log::Level::kInfo, "");
  bench::run_load_bench(cli::parse_bench_options(arguments));
  return 0;
}

int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Cancelled& cancelled) {
    // Another rank logs it, or it was a signal.
    log::debug(cancelled.what());
    return cancelled.status();
  } catch (const Error& error) {
    log::error(error.what());
    return exit_status(error.code());
  } catch (const std::bad_alloc&) {
    log::error("out of host memory");
    return exit_status(Errc::kMemory);
  } catch (const std::exception& error) {
    log::error(error.what());
    return exit_status(Errc::kInternal);
  }
}

}  // namespace

int run_runtime(int argc, char** argv, const MakeBackend& backend) {
  open_standard_descriptors();
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string command = arguments.empty() ? "" : arguments.front();
  if (command == hook::kSupervisorCommand && arguments.size() == 2) {
    return guarded([&] { return hook::supervise(arguments[1]); });
  }
  if (command == "--version") {
    fmt::print("preload-runtime {}, {}, {}\n", PRELOAD_VERSION, mpi_description(),
               doctor::built_for_cuda() == 0
                   ? "without CUDA"
                   : fmt::format("CUDA {}.{}", doctor::built_for_cuda() / 1000,
                                 doctor::built_for_cuda() % 1000 / 10));
    return 0;
  }
  if (command == "serve" || command == "bench" || command == "tune") {
    arguments.erase(arguments.begin());
  }
  return guarded([&] {
    if (command == "bench") return bench_command(arguments);
    return command == "tune" ? tune_command(arguments, backend) : serve_command(arguments, backend);
  });
}

}  // namespace preload::run
