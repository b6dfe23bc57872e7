// SPDX-License-Identifier: Apache-2.0
#include "run/cpu_binding.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "base/counted.hpp"
#include "base/fd.hpp"

namespace preload::run {
namespace {

constexpr std::size_t kSets = 8;  // 8192 CPUs: a plain cpu_set_t ends at 1024
using Mask = std::array<cpu_set_t, kSets>;

std::optional<CpuSet> affinity() {
  Mask mask{};
  if (sched_getaffinity(0, sizeof mask, mask.data()) != 0) return std::nullopt;
  CpuSet cpus;
  for (std::size_t cpu = 0; cpu < sizeof mask * 8; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof mask, mask.data())) cpus.insert(static_cast<int>(cpu));
  }
  return cpus;
}

bool set_affinity(const CpuSet& cpus) {
  Mask mask{};
  for (int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), sizeof mask, mask.data());
  return sched_setaffinity(0, sizeof mask, mask.data()) == 0;
}

std::optional<std::string> line(const std::string& path) {
  try {
    auto text = read_file_at(AT_FDCWD, path);
    if (text) text->resize(std::min(text->find('\n'), text->size()));
    return text;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The NVIDIA driver lists its GPUs by PCI address, each with "GPU UUID: GPU-…".
std::optional<int> node_of_gpu(const std::string& device, const std::string& root) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(root + "proc/driver/nvidia/gpus", error)) {
    std::string text;
    try {
      text = read_file_at(AT_FDCWD, entry.path() / "information").value_or("");
    } catch (const Error&) {
      continue;
    }
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (text.find(device) == text.npos) continue;
    const auto node = line(
        fmt::format("{}sys/bus/pci/devices/{}/numa_node", root, entry.path().filename().string()));
    if (node && !node->empty() && node->front() != '-') return std::atoi(node->c_str());
  }
  return std::nullopt;
}

}  // namespace

std::optional<CpuSet> parse_cpu_list(std::string_view text) {
  CpuSet cpus;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int first = 0;
    auto [next, error] = std::from_chars(at, end, first);
    if (error != std::errc() || first < 0) return std::nullopt;
    int last = first;
    if (next != end && *next == '-') {
      std::tie(next, error) = [&] {
        const auto result = std::from_chars(next + 1, end, last);
        return std::pair(result.ptr, result.ec);
      }();
      if (error != std::errc() || last < first) return std::nullopt;
    }
    if (last >= static_cast<int>(kSets * CPU_SETSIZE)) return std::nullopt;
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
    if (next != end && *next++ != ',') return std::nullopt;
    at = next;
  }
  return cpus;
}

CpuSet node_cpus(const std::string& device, const std::string& root) {
  auto node = node_of_gpu(device, root);
  const int cpu = sched_getcpu();
  for (int i = 0; !node && cpu >= 0 && i < 256; ++i) {
    const auto list = line(fmt::format("{}sys/devices/system/node/node{}/cpulist", root, i));
    if (!list) continue;  // numbers may have gaps
    const auto cpus = parse_cpu_list(*list);
    if (cpus && cpus->contains(cpu)) node = i;
  }
  const std::string path =
      node ? fmt::format("{}sys/devices/system/node/node{}/cpulist", root, *node)
           : root + "sys/devices/system/cpu/online";
  return parse_cpu_list(line(path).value_or("")).value_or(CpuSet());
}

CpuBinding::CpuBinding(const std::string& device)
    : CpuBinding(std::vector<std::string>{device}, "loading") {}

CpuBinding::CpuBinding(const std::vector<std::string>& devices, std::string_view purpose) {
  const auto bound = affinity();
  if (!bound) {
    account_ = fmt::format("CPU binding left as it is: {}", errno_text(errno));
    return;
  }
  before_ = *bound;
  CpuSet node;
  for (const std::string& device : devices) node.merge(node_cpus(device));
  // A container without /sys does not say: ask for all, and the kernel gives what is there.
  const bool known = !node.empty();
  for (int cpu = 0; !known && cpu < static_cast<int>(kSets * CPU_SETSIZE); ++cpu) node.insert(cpu);
  if (std::includes(before_.begin(), before_.end(), node.begin(), node.end())) {
    account_ = fmt::format("CPU binding left as it is: {} CPUs", before_.size());
    return;
  }
  CpuSet wanted = before_;
  wanted.insert(node.begin(), node.end());
  // The kernel cuts this down to the cgroup's CPUs without a word: what counts is what is read
  // back.
  const bool done = set_affinity(wanted);
  const std::string refusal = done ? "the cgroup allows no more" : errno_text(errno);
  const auto after = affinity();
  widened_ = done && after && after->size() > before_.size();
  if (!known && !widened_) {
    account_ = fmt::format("CPU binding left as it is: {} CPUs", before_.size());
    return;
  }
  account_ = widened_ ? fmt::format("CPU binding widened from {} to {} CPUs for {}", before_.size(),
                                    after->size(), purpose)
                      : fmt::format(
                            "CPU binding stays at {}: {}; {} will be slow with "
                            "so few (`srun --cpus-per-task`, `mpirun --bind-to none`)",
                            counted(before_.size(), "CPU"), refusal, purpose);
}

CpuBinding::~CpuBinding() {
  if (widened_) set_affinity(before_);
}

}  // namespace preload::run
