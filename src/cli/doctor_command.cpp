// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>

#include "base/bytes.hpp"
#include "base/environment.hpp"
#include "cli/command.hpp"
#include "cli/runtime_exec.hpp"
#include "cli/serve_options.hpp"
#include "comm/launcher.hpp"
#include "doctor/checkpoint_checks.hpp"
#include "doctor/directory_checks.hpp"
#include "doctor/gpu_checks.hpp"
#include "doctor/launcher_checks.hpp"
#include "doctor/machine_checks.hpp"
#include "doctor/network_checks.hpp"
#include "doctor/report.hpp"
#include "doctor/user_checks.hpp"
#include "model/model_layout.hpp"

namespace preload::cli {
namespace {

using doctor::Check;
using doctor::Checks;

// What one rank of the job would hold; nothing without --model, or when it is refused.
struct Plan {
  Checks checks;
  std::optional<std::uint64_t> rank_bytes;
};

Plan plan_for(const ModelOptions& model, const Launcher& launcher) {
  Plan plan;
  if (model.model.empty()) return plan;
  try {
    const bool alone = launcher.size <= 1;
    const ParallelSizes sizes = alone ? own_sizes(model) : job_sizes(model, launcher.size);
    plan.checks.push_back(
        doctor::ok("world size", fmt::format("{} ranks: dp {} x pp {} x tp {}", sizes.world(),
                                             sizes.dp, sizes.pp, sizes.tp)));
    const Checkpoint checkpoint = open_checkpoint(model.model, model.open);
    plan.checks.push_back(
        check_checkpoint(doctor::gather_checkpoint_facts(checkpoint), checkpoint.directory));
    const ModelSpec spec = layout_spec(checkpoint, model.layout, model.hf_overrides);
    const auto layout = open_layout(checkpoint, spec, model.layout, sizes);
    const RankCoords rank = coords_of(launcher.rank.value_or(0), sizes);
    plan.rank_bytes = layout->share(rank).held_bytes;
    const LayoutNotes notes = layout->notes();
    if (!notes.unservable.empty()) throw Error(Errc::kModel, notes.unservable);
    plan.checks.push_back(doctor::ok(
        "plan", fmt::format("rank {} holds {}", rank.global, format_bytes(*plan.rank_bytes))));
  } catch (const Error& error) {
    plan.checks.push_back(doctor::fail(error.code() == Errc::kUsage ? "world size" : "checkpoint",
                                       error.code(), error.what(),
                                       "`serve` with these flags refuses the same"));
  }
  return plan;
}

// As the launcher says in the environment; Slurm's may be "4(x2)".
int ranks_of_this_node(const doctor::Variables& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"}) {
    const std::string text = variables.text(name);
    int count = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), count);
    if (parsed.ec == std::errc{} && count > 0) return count;
  }
  return 1;
}

void append(Checks& checks, Checks more) {
  checks.insert(checks.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

Checks examine(const ParsedOptions& options, const Launcher& launcher,
               const doctor::Variables& variables) {
  const std::string directory = options.text("weight-cache-socket-dir").value_or("");
  const std::optional<bool> device = device_option(options);
  doctor::DriverPaths paths;
  paths.nccl = options.text("nccl-library").value_or(paths.nccl);
  const doctor::GpuFacts gpus =
      device.value_or(true) ? doctor::gather_gpu_facts(paths) : doctor::GpuFacts{};
  const doctor::MachineFacts machine = doctor::gather_machine_facts();
  const bool has_gpus = !gpus.visible.empty();
  const int ranks_here = ranks_of_this_node(variables);
  Plan plan = plan_for(model_options(options), launcher);

  Checks checks{check_launcher(launcher, variables),
                check_runtime(doctor::gather_runtime_facts(find_runtime()), launcher)};
  if (device.value_or(true)) {
    checks.push_back(check_driver(gpus, doctor::built_for_cuda()));
    checks.push_back(check_visible_gpus(gpus, variables));
    if (device && !has_gpus) {
      checks.push_back(doctor::fail("GPU binding", Errc::kDevice,
                                    "--device cuda, and no GPU is visible here",
                                    "request GPUs from the launcher (`srun --gpus-per-task=1`), or "
                                    "serve from host memory with --device host"));
    } else {
      checks.push_back(check_binding(gpus, launcher));
    }
  }
  if (has_gpus) {
    checks.push_back(check_compute_mode(gpus, variables));
    checks.push_back(check_nccl(gpus, paths.nccl));
    append(checks, check_gpu_memory(gpus, plan.rank_bytes, doctor::describe_process));
  }
  append(checks, std::move(plan.checks));
  std::optional<std::uint64_t> host_bytes;
  if (!has_gpus && plan.rank_bytes)
    host_bytes = *plan.rank_bytes * static_cast<unsigned>(ranks_here);
  checks.push_back(check_host_memory(machine, host_bytes));
  checks.push_back(check_cpus(machine, ranks_here));
  checks.push_back(check_descriptors(machine));
  checks.push_back(check_limits(machine, has_gpus));
  checks.push_back(check_shared_memory(machine, has_gpus));
  checks.push_back(
      check_network(doctor::gather_interfaces(), doctor::gather_adapters(), variables));
  checks.push_back(doctor::check_directory(directory));
  append(checks, doctor::check_daemons(directory));
  checks.push_back(check_cache(variables));
  checks.push_back(check_tmpdir(variables));
  checks.push_back(check_library_path(variables));
  return checks;
}

}  // namespace

int run_doctor(const Arguments& arguments) {
  const ParsedOptions options("doctor", arguments);
  const doctor::Variables variables = doctor::Variables::of_this_process();
  Launcher launcher;
  Checks checks;
  try {
    launcher = detect_launcher();
  } catch (const Error& error) {
    checks.push_back(doctor::fail("launcher", error.code(), error.what(),
                                  "start it with srun or mpirun, or alone"));
  }
  append(checks, examine(options, launcher, variables));
  const doctor::Examined who{host_name(), launcher.rank.value_or(0),
                             launcher.local_rank.value_or(0) != 0};
  // In one go, so that the ranks' reports do not mix.
  const std::string text = options.has("json") ? doctor::json(who, checks) : table(who, checks);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return doctor::exit_status(checks);
}

}  // namespace preload::cli
