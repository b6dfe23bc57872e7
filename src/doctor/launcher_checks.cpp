// SPDX-License-Identifier: Apache-2.0
#include "doctor/launcher_checks.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>

namespace preload::doctor {
namespace {

constexpr const char* kLauncher = "launcher";
constexpr const char* kRuntime = "runtime and MPI";

// Quoted for sh.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

Check check_launcher(const Launcher& launcher, const Variables& variables) {
  if (launcher.kind == Launcher::Kind::kNone) {
    if (!variables.text("SLURM_JOB_ID").empty() && variables.text("SLURM_STEP_ID").empty()) {
      return warn(kLauncher, "inside a Slurm allocation, but not started by srun: one rank, here",
                  "start preload with `srun` to have a rank for each GPU");
    }
    return ok(kLauncher, "none: one rank");
  }
  const std::string where =
      fmt::format("{}, rank {} of {}{}", launcher_name(launcher.kind), launcher.rank.value_or(0),
                  launcher.size == 0 ? "?" : std::to_string(launcher.size),
                  launcher.local_rank ? fmt::format(", local rank {}", *launcher.local_rank) : "");
  const bool pmi = variables.has("PMI_RANK") || variables.has("PMI_FD");
  if (launcher.kind == Launcher::Kind::kSlurm && !pmi) {
    return fail(
        kLauncher, Errc::kLauncher,
        fmt::format("{}: it gives its {} tasks no PMI, so that MPI in each of them would be "
                    "rank 0 of 1 (SLURM_MPI_TYPE=\"{}\")",
                    where, launcher.size, variables.text("SLURM_MPI_TYPE")),
        "`srun --mpi=list` shows what this Slurm offers; start with `srun --mpi=pmix` (PMIx "
        "of the same major version as the MPI's), or with that MPI's own mpirun");
  }
  if (launcher.kind == Launcher::Kind::kSlurm) {
    return warn(kLauncher,
                fmt::format("{}: PMI-1 or PMI-2, which Open MPI speaks only when built "
                            "for it",
                            where),
                "`srun --mpi=pmix` where `srun --mpi=list` shows it");
  }
  return ok(kLauncher, where);
}

RuntimeFacts gather_runtime_facts(const std::optional<std::string>& path) {
  RuntimeFacts facts;
  if (!path) return facts;
  facts.path = *path;
  const std::string command = quoted(*path) + " --version 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {*path, "it cannot be started", {}};
  std::string text;
  std::array<char, 512> line;
  while (std::fgets(line.data(), line.size(), pipe) != nullptr) text += line.data();
  const int status = ::pclose(pipe);
  while (text.ends_with('\n')) text.pop_back();
  (status == 0 ? facts.says : facts.problem) = text.empty() ? "it says nothing" : text;
  return facts;
}

Check check_runtime(const RuntimeFacts& facts, const Launcher& launcher) {
  if (facts.path.empty()) {
    return fail(kRuntime, Errc::kUsage, "preload-runtime, which loads and serves, is not found",
                "install it beside preload or in libexec/preload, or set PRELOAD_RUNTIME to it");
  }
  if (!facts.problem.empty()) {
    return fail(kRuntime, Errc::kLauncher,
                fmt::format("{} does not run: {}", facts.path, facts.problem),
                "load the modules that it was built with (MPI, CUDA), or set LD_LIBRARY_PATH to "
                "their libraries");
  }
  if (launcher.kind != Launcher::Kind::kNone && facts.says.find("without MPI") != facts.says.npos) {
    return fail(kRuntime, Errc::kLauncher,
                fmt::format("{}, but a launcher started {} tasks", facts.says, launcher.size),
                "build preload with -DPRELOAD_MPI=ON, or run it without a launcher");
  }
  return ok(kRuntime, facts.says);
}

}  // namespace preload::doctor
