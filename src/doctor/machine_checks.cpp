// SPDX-License-Identifier: Apache-2.0
#include "doctor/machine_checks.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "base/bytes.hpp"

namespace preload::doctor {
namespace {

constexpr const char* kDescriptors = "descriptors";
constexpr const char* kLimits = "limits";
constexpr const char* kCpus = "CPUs";
constexpr const char* kMemory = "host memory";
constexpr const char* kShm = "/dev/shm";
constexpr std::uint64_t kFewDescriptors = 1024;
constexpr std::uint64_t kLittleLocked = 64 * kMiB;
constexpr std::uint64_t kLittleShm = kGiB;
constexpr std::uint64_t kRing = 512 * kMiB;  // --ring-bytes' default
constexpr int kFewCpus = 4;

std::uint64_t soft_limit(decltype(RLIMIT_NOFILE) what) {
  rlimit limit{};
  if (::getrlimit(what, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return MachineFacts::kUnlimited;
  return limit.rlim_cur;
}

int usable_cpus() {
  constexpr std::size_t kSets = 8;  // 8192 CPUs: a plain cpu_set_t ends at 1024
  std::array<cpu_set_t, kSets> mask{};
  if (::sched_getaffinity(0, sizeof mask, mask.data()) != 0) return 0;
  return CPU_COUNT_S(sizeof mask, mask.data());
}

// "max 100000" or "150000 100000" of cgroup v2, on this cgroup or one above it.
std::optional<double> cpu_quota(const std::string& root) {
  std::ifstream self(root + "/proc/self/cgroup");
  std::string line;
  std::string path;
  while (std::getline(self, line)) {
    if (line.starts_with("0::")) path = line.substr(3);
  }
  std::optional<double> least;
  for (;;) {
    std::ifstream file(root + "/sys/fs/cgroup" + path + "/cpu.max");
    double quota = 0;
    double period = 0;
    if (file >> quota >> period && period > 0) {
      least = std::min(least.value_or(quota / period), quota / period);
    }
    const std::size_t slash = path.rfind('/');
    if (path.size() <= 1 || slash == path.npos) return least;
    path.resize(slash);
  }
}

std::string limit_text(std::uint64_t bytes) {
  return bytes == MachineFacts::kUnlimited ? "unlimited" : format_bytes(bytes);
}

}  // namespace

MachineFacts gather_machine_facts(const std::string& root) {
  const std::string base = root == "/" ? "" : root;
  MachineFacts facts;
  facts.descriptors = soft_limit(RLIMIT_NOFILE);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  facts.most_descriptors = limit.rlim_max;
  facts.locked_bytes = soft_limit(RLIMIT_MEMLOCK);
  facts.address_bytes = soft_limit(RLIMIT_AS);
  facts.file_bytes = soft_limit(RLIMIT_FSIZE);
  facts.cpus = usable_cpus();
  facts.online_cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  facts.cpu_quota = cpu_quota(base);
  facts.memory = host_memory(root);
  struct statvfs shm {};
  if (::statvfs((base + "/dev/shm").c_str(), &shm) == 0) {
    facts.shm_free_bytes = static_cast<std::uint64_t>(shm.f_bavail) * shm.f_frsize;
  }
  std::error_code none;
  facts.infiniband = !std::filesystem::is_empty(base + "/sys/class/infiniband", none) && !none;
  return facts;
}

Check check_descriptors(const MachineFacts& facts) {
  const std::string text =
      fmt::format("{} (at most {})", facts.descriptors, facts.most_descriptors);
  // Daemon and keeper raise their own.
  if (facts.most_descriptors >= kFewDescriptors) return ok(kDescriptors, text);
  return warn(
      kDescriptors,
      fmt::format("{}: each lease, slab and connection takes one, and few clients can attach",
                  text),
      "`ulimit -n 65536` before the launcher, or LimitNOFILE= of the unit");
}

Check check_limits(const MachineFacts& facts, bool gpus) {
  const std::string text = fmt::format(
      "locked memory {}, address space {}, file size {}", limit_text(facts.locked_bytes),
      limit_text(facts.address_bytes), limit_text(facts.file_bytes));
  if (gpus && facts.address_bytes != MachineFacts::kUnlimited) {
    return fail(kLimits, Errc::kMemory,
                fmt::format("the address space is limited to {}: CUDA reserves as much as all GPUs "
                            "have, and then some",
                            limit_text(facts.address_bytes)),
                "`ulimit -v unlimited` (Slurm: VSizeFactor=0, and no limit passed on from the "
                "submitting shell: `srun --propagate=NONE`)");
  }
  if (facts.infiniband && facts.locked_bytes < kLittleLocked) {
    return warn(kLimits,
                fmt::format("only {} may be locked: InfiniBand cannot register its buffers",
                            limit_text(facts.locked_bytes)),
                "`ulimit -l unlimited` (Slurm: PropagateResourceLimitsExcept=MEMLOCK, and "
                "LimitMEMLOCK=infinity of slurmd), or LimitMEMLOCK= of the unit");
  }
  if (facts.file_bytes != MachineFacts::kUnlimited) {
    return warn(
        kLimits,
        fmt::format("files are limited to {}: larger slabs of host memory and snapshots fail",
                    limit_text(facts.file_bytes)),
        "`ulimit -f unlimited`");
  }
  return ok(kLimits, text);
}

Check check_cpus(const MachineFacts& facts, int ranks_here) {
  const std::string text =
      fmt::format("{} of {}{}", facts.cpus, facts.online_cpus,
                  facts.cpu_quota ? fmt::format(", time for {:.1f}", *facts.cpu_quota) : "");
  const double each = facts.cpu_quota ? *facts.cpu_quota / std::max(1, ranks_here)
                                      : static_cast<double>(facts.cpus);
  const int enough = std::min(kFewCpus, facts.online_cpus);
  if (facts.cpu_quota && each < std::min(kFewCpus, facts.cpus)) {
    return warn(kCpus,
                fmt::format("{}: the cgroup leaves a rank time for {:.1f}, and loading will be "
                            "slow",
                            text, each),
                "request more CPUs (`--cpus-per-task`, the container's CPU limit)");
  }
  if (facts.cpus < enough) {
    return warn(kCpus,
                fmt::format("{}: loading widens this to the GPU's NUMA node as far as the cgroup "
                            "allows, and is slow where it does not",
                            text),
                "`srun --cpus-per-task=8`, `mpirun --bind-to none`");
  }
  return ok(kCpus, text);
}

Check check_host_memory(const MachineFacts& facts, std::optional<std::uint64_t> needed_bytes) {
  const std::string text =
      fmt::format("{} of {} available ({})", format_bytes(facts.memory.available_bytes),
                  format_bytes(facts.memory.total_bytes), facts.memory.limited_by);
  if (needed_bytes && *needed_bytes > facts.memory.available_bytes) {
    return fail(kMemory, Errc::kMemory,
                fmt::format("{}; the weights need {}", text, format_bytes(*needed_bytes)),
                "free memory, raise the limit (`srun --mem=0`), or shard over more ranks of more "
                "nodes");
  }
  if (facts.memory.available_bytes < 2 * kRing) {
    return warn(
        kMemory,
        fmt::format("{}: a rank takes a ring of {} while loading", text, format_bytes(kRing)),
        "raise the limit (`srun --mem`), or lower --ring-bytes");
  }
  return ok(kMemory, text);
}

Check check_shared_memory(const MachineFacts& facts, bool gpus) {
  if (!facts.shm_free_bytes) {
    return warn(kShm, "it is not there: preload does without, NCCL and engines do not",
                "mount it (`docker --shm-size=8g`), or set NCCL_SHM_DISABLE=1 for the engine");
  }
  if (gpus && *facts.shm_free_bytes < kLittleShm) {
    return warn(kShm,
                fmt::format("{} free: NCCL and engines of several ranks want more",
                            format_bytes(*facts.shm_free_bytes)),
                "remove what is left there, or `docker --shm-size=8g`, or --ipc=host");
  }
  return ok(kShm, fmt::format("{} free", format_bytes(*facts.shm_free_bytes)));
}

}  // namespace preload::doctor
