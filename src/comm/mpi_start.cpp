// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/environment.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/mpi_group.hpp"
#include "comm/mpi_leave.hpp"
#include "comm/tcp.hpp"
#include "comm/watchdog.hpp"

namespace preload {

// The first phrase of the library's own text.
std::string mpi_description() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  const std::string_view whole(text.data(), static_cast<std::size_t>(length));
  return std::string(whole.substr(0, whole.find_first_of(",\n")));
}

namespace {

// Ranks do not start at the same moment, and all are to have ended within five seconds.
constexpr auto kFirstSpeaks = std::chrono::milliseconds(2500);

std::string remedy() {
  return fmt::format(
      "preload was built against {}: `srun --mpi=list` shows what this Slurm offers; start with "
      "`srun --mpi=pmix ...` (PMIx of the same major version), or with that MPI's own mpirun",
      mpi_description());
}

std::string lonely_text(const Launcher& launcher) {
  return fmt::format(
      "{} started {} tasks, but MPI on {} sees a world of 1: launcher and MPI do not "
      "speak the same PMI. {}. Environment: {}",
      launcher_name(launcher.kind), launcher.size, host_name(), remedy(), launcher_environment());
}

// srun without PMIx, or the mpiexec of another MPI: no rank finds another one.
bool speaks_another_pmi(const Launcher& launcher) {
  return launcher.kind == Launcher::Kind::kSlurm || launcher.kind == Launcher::Kind::kPmi;
}

// Every rank finds such a thing out by itself: the launcher's first one says it. The others wait
// until it has, since the first to end may take the rest with it.
bool is_silent(const Launcher& launcher) {
  if (launcher.rank.value_or(0) == 0) return false;
  std::this_thread::sleep_for(kFirstSpeaks);
  // There may be no rank 0: an environment that was copied from another process's has only a rank.
  log::warn(
      fmt::format("rank {} ends with status {}: rank 0 says why. If no launcher started this "
                  "process, unset its variables ({}) to run one rank alone",
                  *launcher.rank, exit_status(Errc::kLauncher), launcher_environment()));
  return true;
}

[[noreturn]] void refuse_lonely(const Launcher& launcher) {
  const Error error(Errc::kLauncher, lonely_text(launcher));
  if (!is_silent(launcher)) throw error;
  throw Cancelled({exit_status(error.code()), error.what()});
}

// MPIs end the process when they cannot start, instead of returning an error. Then these say what
// to do and give the status that the contract asks for.
std::atomic<const Launcher*> starting{nullptr};

void explain_exit() {
  const Launcher* const launcher = starting.exchange(nullptr);
  if (launcher == nullptr) return;
  // What one rank alone ran into, that one says.
  if (!speaks_another_pmi(*launcher) || !is_silent(*launcher)) {
    log::error(
        fmt::format("MPI_Init ended the process on {}, started by {} with {} tasks. {}. "
                    "Environment: {}",
                    host_name(), launcher_name(launcher->kind), launcher->size, remedy(),
                    launcher_environment()));
  }
  std::_Exit(exit_status(Errc::kLauncher));
}

void init(const Launcher& launcher, std::chrono::seconds timeout) {
  const Watchdog watchdog(
      timeout, exit_status(Errc::kLauncher),
      fmt::format("MPI_Init did not return within {} s on {}, started by {} with {} tasks: a rank "
                  "did not start, or MPI picked a network interface that the hosts do not share "
                  "(here: {}; choose one with OMPI_MCA_btl_tcp_if_include or UCX_NET_DEVICES). "
                  "{}. Environment: {}",
                  timeout.count(), host_name(), launcher_name(launcher.kind), launcher.size,
                  host_interfaces(), remedy(), launcher_environment()));
  static const int registered = std::atexit(explain_exit);
  static_cast<void>(registered);
  starting = &launcher;
  int provided = MPI_THREAD_SINGLE;
  const int result = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  starting = nullptr;
  check_mpi(result, "MPI_Init");
  if (provided < MPI_THREAD_FUNNELED) {
    throw Error(Errc::kLauncher, fmt::format("{} offers no thread support (MPI_THREAD_FUNNELED)",
                                             mpi_description()));
  }
}

}  // namespace

// Open MPI's way out of MPI_Init, past every exit handler. Being in the executable, this is what
// its libraries find under the name; we end by std::_Exit.
extern "C" [[noreturn, gnu::visibility("default")]] void _exit(int status) {
  explain_exit();
  std::_Exit(status);
}

void leave_mpi() noexcept {
  int begun = 0;
  int over = 0;
  if (MPI_Initialized(&begun) != MPI_SUCCESS || MPI_Finalized(&over) != MPI_SUCCESS) return;
  if (begun != 0 && over == 0) MPI_Finalize();
}

std::unique_ptr<Group> make_mpi_group(const Launcher& launcher, std::chrono::seconds init_timeout,
                                      std::size_t max_round_bytes) {
  const bool told = std::getenv("PMI_RANK") != nullptr || std::getenv("PMI_FD") != nullptr;
  if (launcher.kind == Launcher::Kind::kSlurm && !told) {
    refuse_lonely(launcher);
  }
  init(launcher, init_timeout);
  auto group = std::make_unique<MpiGroup>(MPI_COMM_WORLD, max_round_bytes);
  if (group->size() == 1 && launcher.size > 1) {
    refuse_lonely(launcher);
  }
  return group;
}

}  // namespace preload
