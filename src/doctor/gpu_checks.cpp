// SPDX-License-Identifier: Apache-2.0
#include "doctor/gpu_checks.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include "base/bytes.hpp"
#include "serve/peer.hpp"

namespace preload::doctor {
namespace {

constexpr const char* kDriver = "driver";
constexpr const char* kVisible = "visible GPUs";
constexpr const char* kBinding = "GPU binding";
constexpr const char* kComputeMode = "compute mode";
constexpr const char* kNccl = "NCCL";
constexpr const char* kMemory = "GPU memory";
constexpr int kProhibited = 2;        // of nvmlComputeMode_t
constexpr int kExclusiveProcess = 3;  // of nvmlComputeMode_t

std::string version_text(int cuda) { return fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10); }

const NvmlGpu* find(const GpuFacts& facts, const std::string& uuid) {
  const auto at = std::ranges::find(facts.nvml.gpus, uuid, &NvmlGpu::uuid);
  return at == facts.nvml.gpus.end() ? nullptr : &*at;
}

std::vector<std::string> entries_of(const std::string& list) {
  std::vector<std::string> entries;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string entry = list.substr(begin, end - begin);
    std::erase(entry, ' ');
    entries.push_back(std::move(entry));
    begin = end + 1;
  }
  return entries;
}

// Instances are devices only when they are named.
bool any_mig(const GpuFacts& facts) { return std::ranges::any_of(facts.nvml.gpus, &NvmlGpu::mig); }

}  // namespace

int built_for_cuda() noexcept { return PRELOAD_BUILT_FOR_CUDA; }

Check check_driver(const GpuFacts& facts, int built_for_cuda) {
  if (facts.nvml.mismatch) {
    return fail(kDriver, Errc::kDevice,
                "the driver's kernel module and its libraries are of different versions",
                "the driver was updated while it was loaded, or the container brings libraries of "
                "its own: reboot the node or reload the module; start containers without a driver "
                "inside");
  }
  if (!facts.cuda_problem.empty()) {
    if (!facts.device_files) {
      return ok(kDriver, "there is no NVIDIA driver here: preload serves from host memory");
    }
    return fail(kDriver, Errc::kDevice,
                fmt::format("this machine has NVIDIA device files, but {}", facts.cuda_problem),
                "in a container give it the driver: `apptainer --nv`, `docker --gpus`; in a job "
                "request GPUs; elsewhere install the driver's libraries, and run nvidia-smi");
  }
  const std::string text = fmt::format(
      "driver {}, CUDA {}",
      facts.nvml.driver_version.empty() ? "of unknown version" : facts.nvml.driver_version,
      version_text(facts.cuda_version));
  if (built_for_cuda == 0) {
    return warn(
        kDriver, text + ", but this preload was built without CUDA",
        "build it where a CUDA toolkit is (-DPRELOAD_CUDA=ON), or serve with --device host");
  }
  if (facts.cuda_version / 1000 < built_for_cuda / 1000) {
    return fail(kDriver, Errc::kDevice,
                fmt::format("{}: too old for a preload built with CUDA {}", text,
                            version_text(built_for_cuda)),
                fmt::format("update the driver, or build preload with a CUDA {} toolkit",
                            facts.cuda_version / 1000));
  }
  return ok(kDriver, fmt::format("{}; built with CUDA {}", text, version_text(built_for_cuda)));
}

Check check_visible_gpus(const GpuFacts& facts, const Variables& variables) {
  const std::string name = "CUDA_VISIBLE_DEVICES";
  const std::string list = variables.text(name);
  const std::size_t seen = facts.visible.size();
  std::string text = seen == 0 ? "none" : fmt::format("{}", fmt::join(facts.visible, ", "));
  if (!variables.has(name)) {
    if (seen == 0 && any_mig(facts)) {
      return fail(
          kVisible, Errc::kDevice, "MIG is on and no instance is visible",
          "make instances (`nvidia-smi mig -cgi … -C`) and request them from the scheduler, "
          "or switch MIG off (`nvidia-smi -mig 0`)");
    }
    return ok(kVisible, std::move(text));
  }
  const std::size_t named = entries_of(list).size();
  if (list.empty() || list == "-1" || list == "NoDevFiles") {
    return facts.nvml.gpus.empty() && !facts.device_files
               ? ok(kVisible, fmt::format("none: {}=\"{}\"", name, list))
               : warn(kVisible, fmt::format("{}=\"{}\" hides every GPU", name, list),
                      "request GPUs from the launcher (`srun --gpus-per-task=1`), or unset it");
  }
  // CUDA stops at the first entry that it does not know.
  if (seen < named && facts.device_files) {
    return fail(
        kVisible, Errc::kDevice,
        fmt::format("{}=\"{}\" names {} GPUs, of which CUDA shows {}: it stops at the first "
                    "that it does not know",
                    name, list, named, seen),
        "name devices of this node, by index or by UUID (`nvidia-smi -L`); where the "
        "launcher isolates GPUs, indices begin at 0 in every task; with MIG, one instance "
        "by its UUID");
  }
  return ok(kVisible, fmt::format("{} ({}=\"{}\")", text, name, list));
}

Check check_binding(const GpuFacts& facts, const Launcher& launcher) {
  const std::size_t seen = facts.visible.size();
  if (seen == 0) return ok(kBinding, "no GPU: host memory");
  if (launcher.kind == Launcher::Kind::kNone) {
    return ok(kBinding, fmt::format("without a launcher one rank would take {}", facts.visible[0]));
  }
  const auto local = static_cast<std::size_t>(launcher.local_rank.value_or(0));
  if (seen == 1) {
    return ok(kBinding, fmt::format("local rank {} sees one GPU, {}; `serve` refuses two ranks on "
                                    "one",
                                    local, facts.visible[0]));
  }
  if (local < seen) {
    return ok(kBinding, fmt::format("local rank {} of those that see {} GPUs would take {}", local,
                                    seen, facts.visible[local]));
  }
  return fail(kBinding, Errc::kLauncher,
              fmt::format("local rank {} sees {} GPUs: there are more ranks than GPUs on this node",
                          local, seen),
              fmt::format("start at most one rank per GPU: `srun --ntasks-per-node={0}`, `mpirun "
                          "--map-by ppr:{0}:node`",
                          seen));
}

Check check_compute_mode(const GpuFacts& facts, const Variables& variables) {
  std::vector<std::string> exclusive, prohibited;
  for (const std::string& uuid : facts.visible) {
    const NvmlGpu* gpu = find(facts, uuid);
    if (gpu == nullptr) continue;
    if (gpu->compute_mode == kProhibited) prohibited.push_back(uuid);
    if (gpu->compute_mode == kExclusiveProcess) exclusive.push_back(uuid);
  }
  constexpr const char* kRemedy = "as root: `nvidia-smi -c DEFAULT`";
  if (!prohibited.empty()) {
    return fail(kComputeMode, Errc::kDevice,
                fmt::format("PROHIBITED on {}: no process can use it", fmt::join(prohibited, ", ")),
                kRemedy);
  }
  if (!exclusive.empty()) {
    return warn(
        kComputeMode,
        fmt::format("EXCLUSIVE_PROCESS on {}: preload cannot load while an engine runs there, "
                    "and no second engine can attach",
                    fmt::join(exclusive, ", ")),
        kRemedy);
  }
  if (variables.has("CUDA_MPS_PIPE_DIRECTORY")) {
    return warn(kComputeMode,
                "CUDA_MPS_PIPE_DIRECTORY is set: processes share GPUs through MPS, whose server "
                "ends all of them when one faults",
                "unset it unless the site asks for MPS");
  }
  return ok(kComputeMode, "shared, without MPS");
}

Check check_nccl(const GpuFacts& facts, const std::string& library) {
  if (facts.nccl_version == 0) {
    return warn(kNccl,
                fmt::format("{} is not found: ranks on several hosts, and GPUs that cannot map "
                            "each other's memory, then do not hand on what they read",
                            library),
                "load the site's module, or name the library with --nccl-library");
  }
  return ok(kNccl, fmt::format("{}.{}.{}", facts.nccl_version / 10000,
                               facts.nccl_version % 10000 / 100, facts.nccl_version % 100));
}

Checks check_gpu_memory(const GpuFacts& facts, std::optional<std::uint64_t> needed_bytes,
                        const std::function<std::string(unsigned pid)>& describe_process) {
  Checks checks;
  for (const std::string& uuid : facts.visible) {
    const NvmlGpu* gpu = find(facts, uuid);
    if (gpu == nullptr) {
      checks.push_back(warn(kMemory, fmt::format("{}: NVML does not say how much is free", uuid),
                            "what is free shows when memory is allocated"));
      continue;
    }
    std::vector<std::string> holders;
    for (const NvmlProcess& process : gpu->device.processes) {
      holders.push_back(fmt::format(
          "{}{}", describe_process(process.pid),
          process.used_bytes ? " " + format_bytes(*process.used_bytes) : std::string()));
    }
    std::string text = fmt::format("{}: {} of {} free", uuid, format_bytes(gpu->device.free_bytes),
                                   format_bytes(gpu->device.total_bytes));
    if (!holders.empty()) text += fmt::format("; held by {}", fmt::join(holders, ", "));
    if (needed_bytes && *needed_bytes > gpu->device.free_bytes) {
      checks.push_back(fail(kMemory, Errc::kMemory,
                            fmt::format("{}; a rank needs {}", text, format_bytes(*needed_bytes)),
                            "stop what holds it, or shard over more GPUs"));
    } else {
      if (needed_bytes) text += fmt::format("; a rank needs {}", format_bytes(*needed_bytes));
      checks.push_back(ok(kMemory, std::move(text)));
    }
  }
  return checks;
}

std::string describe_process(unsigned pid) {
  std::string name;
  std::ifstream comm(fmt::format("/proc/{}/comm", pid));
  std::getline(comm, name);
  struct stat status {};
  if (::stat(fmt::format("/proc/{}", pid).c_str(), &status) != 0) {
    return fmt::format("pid {} (not to be seen from here)", pid);
  }
  return fmt::format("pid {} ({}, {})", pid, name, user_text(status.st_uid));
}

}  // namespace preload::doctor
