// SPDX-License-Identifier: Apache-2.0
#include "comm/launcher.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/environment.hpp"
#include "base/error.hpp"

namespace preload {
namespace {

std::optional<int> number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [parsed, error] = std::from_chars(text, end, value);
  if (error != std::errc() || parsed != end || value < 0) {
    throw Error(Errc::kLauncher,
                fmt::format("the launcher set {}=\"{}\", which is no number: start preload with "
                            "srun or mpirun, or unset {} to run one rank alone",
                            name, text, name));
  }
  return value;
}

// The interactive step of salloc has a step id too, with a single task: the task count decides.
std::optional<int> slurm_step_tasks() {
  if (environment("SLURM_STEP_ID").empty()) return std::nullopt;
  if (const auto tasks = number("SLURM_STEP_NUM_TASKS")) return tasks;
  return number("SLURM_NTASKS");
}

std::string slurm_job() {
  const std::string job = environment("SLURM_JOB_ID");
  const std::string step = environment("SLURM_STEP_ID");
  if (job.empty() || step.empty()) return {};
  return fmt::format("slurm-{}.{}", job, step);
}

}  // namespace

Launcher detect_launcher() {
  Launcher launcher;
  if (const auto size = number("OMPI_COMM_WORLD_SIZE")) {
    launcher.kind = Launcher::Kind::kOpenMpi;
    launcher.size = *size;
    launcher.rank = number("OMPI_COMM_WORLD_RANK");
    launcher.local_rank = number("OMPI_COMM_WORLD_LOCAL_RANK");
    return launcher;
  }
  const auto pmix_rank = number("PMIX_RANK");
  const auto tasks = slurm_step_tasks();
  if (!pmix_rank && tasks.value_or(1) <= 1) {
    // The mpiexec of MPICH and its kin. Of Slurm's own steps the task count has decided.
    const auto size = environment("SLURM_STEP_ID").empty() ? number("PMI_SIZE") : std::nullopt;
    if (size.value_or(1) <= 1) return launcher;
    launcher.kind = Launcher::Kind::kPmi;
    launcher.size = *size;
    launcher.rank = number("PMI_RANK");
    launcher.local_rank = number("MPI_LOCALRANKID");
    return launcher;
  }
  launcher.kind = pmix_rank ? Launcher::Kind::kPmix : Launcher::Kind::kSlurm;
  launcher.size = tasks.value_or(0);
  launcher.rank = pmix_rank ? pmix_rank : number("SLURM_PROCID");
  launcher.local_rank = number("SLURM_LOCALID");
  launcher.job_id = slurm_job();
  return launcher;
}

std::string_view launcher_name(Launcher::Kind kind) noexcept {
  switch (kind) {
    case Launcher::Kind::kNone:
      return "none";
    case Launcher::Kind::kOpenMpi:
      return "mpirun (Open MPI)";
    case Launcher::Kind::kPmix:
      return "a PMIx launcher";
    case Launcher::Kind::kSlurm:
      return "srun without PMIx";
    case Launcher::Kind::kPmi:
      return "another MPI's mpiexec";
  }
  return "unknown";
}

std::string launcher_environment() {
  static constexpr std::array<std::string_view, 8> kPrefixes = {
      "OMPI_",       "PMIX_",        "PMI_",         "SLURM_MPI_TYPE",
      "SLURM_STEP_", "SLURM_NTASKS", "SLURM_PROCID", "UCX_"};
  std::vector<std::string_view> shown;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::string_view name = variable.substr(0, variable.find('='));
    // PMIX_SECURITY_* and OMPI's own URIs and cookies let a process into the job.
    const bool secret = name.find("SECUR") != name.npos || name.find("COOKIE") != name.npos ||
                        name.find("URI") != name.npos || name.find("KEY") != name.npos;
    const bool wanted = std::any_of(kPrefixes.begin(), kPrefixes.end(),
                                    [&](std::string_view p) { return name.starts_with(p); });
    if (wanted && !secret) shown.push_back(variable);
  }
  std::sort(shown.begin(), shown.end());
  return shown.empty() ? "none" : fmt::format("{}", fmt::join(shown, " "));
}

}  // namespace preload
